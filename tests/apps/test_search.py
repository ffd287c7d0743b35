"""The commands of ``lreid search`` from build to migrate, and bad input, which changes no file."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from example_files import write_checkpoint
from PIL import Image

from lreid.gallery import build, list_images, remove


@pytest.fixture
def output(in_world) -> Callable[..., str]:
    """Run a command of ``lreid search`` that succeeds, and return what it prints."""

    def run(*arguments: str) -> str:
        status, out, err = in_world("search", *arguments)
        assert status == 0, err
        return out

    return run


LISTED = "9 images of 4 identities (2, 7502, 15002 …) by 6 cameras (1, 2, 3 …)"


def test_gallery_is_built_changed_and_searched(output: Callable[..., str], world: Path) -> None:
    assert output("build", "life", "g", "--checkpoint", "model.pt") == f"life: {LISTED}\n"
    assert output("add", "life", "g", "q").startswith("life: 8 images added, 9 already in it or skipped; they show ")
    assert "keep their name; remove them first" in output("add", "life", "q", "--identity", "anna")
    assert output("remove", "life", "--identity", "2") == "life: 4 images removed\n"
    assert "13\n" in output("info", "life").splitlines(keepends=True)[0]
    assert output("calibrate", "life", "q", "--false-accept-rate", "0.5").startswith("life: threshold 0.")
    text = output("query", "life", "q", "--top", "2", "--out", "found")
    answers = json.loads((world / "found" / "matches.json").read_text())["queries"]
    unknown = sum(each["unknown"] for each in answers)
    assert f"8 queries in 13 images: {8 - unknown} recognised, {unknown} unknown at threshold " in text
    assert len(text.splitlines()) <= 4 and (world / "found" / "matches.html").exists()


def test_build_chooses_the_model_and_proposes_a_pattern(output: Callable[..., str], world: Path) -> None:
    (world / "shop").mkdir()
    for number, name in enumerate(("anna_gate_1", "anna_yard_1", "ben_gate_1", "ben_yard_1")):
        Image.new("RGB", (32, 64), (60 * number, 9, 9)).save(world / "shop" / f"{name}.png")
    pattern, model, built = output("build", "chosen", "shop").splitlines()
    assert "zoo:people," in model and "4 images" in built
    text = re.search('--pattern "(.*)"', pattern)[1]
    assert output("build", "again", "shop", "--pattern", text, "--checkpoint", "model.pt") == (
        "again: 4 images of 2 identities (anna, ben) by 2 cameras (gate, yard)\n"
    )
    assert output("add", "chosen", "shop").count("identit") == 0


@pytest.mark.slow
def test_filters_reindex_rollback_and_migrate(output: Callable[..., str], world: Path) -> None:
    where = "moving"
    write_checkpoint(world / "newer.pt", seed=1)
    assert output("build", where, "g", "--checkpoint", "model.pt") == f"{where}: {LISTED}\n"
    old = output("info", where)
    output("query", where, "q", "--only-camera", "1", "--not-identity", "2", "--top", "9", "--out", "narrow")
    answers = json.loads((world / "narrow" / "matches.json").read_text())["queries"]
    assert {(match["camera"], match["identity"] == "2") for each in answers for match in each["matches"]} == {
        ("1", False)
    }
    output("query", where, "q", "--since", "5", "--out", "later")  # no times are known
    assert [each["matches"] for each in json.loads((world / "later" / "matches.json").read_text())["queries"]] == 8 * [
        []
    ]
    assert output("reindex", where, "--checkpoint", "newer.pt") == (
        f"{where}: 9 images with features of the new model, 9 extracted now; "
        "calibrate the gallery again, or return to the old model with rollback\n"
    )
    assert output("info", where) != old
    assert output("rollback", where).startswith(f"{where}: model ")
    now = output("info", where)
    assert "next" not in old and "next" in now  # the newer version is set aside, not deleted
    was, now = ([line for line in text.splitlines() if not line.startswith("related files")] for text in (old, now))
    assert now == was
    message = output("migrate", where, "copy", "--shards", "2", "--kind", "hnsw")
    assert message == f"copy: 9 images, 100.0 % of sampled matches as in {where}\n"
    assert "hnsw" in output("info", "copy")


@pytest.fixture(scope="module")
def contents(world: Path) -> dict[Path, bytes]:
    """Write unusable galleries and checkpoints next to a good gallery, and return the content of the galleries."""
    images = list_images([world / "g"], "")
    build(world / "good.gallery", world / "model.pt", images, device="cpu")
    build(world / "empty.gallery", world / "model.pt", images, device="cpu")
    remove(world / "empty.gallery", [image.path for image in images])
    write_checkpoint(world / "wide.pt", MODEL__BACKBONE="small")
    diverged = torch.load(write_checkpoint(world / "diverged.pt"), weights_only=False)
    for weight in diverged["model"].values():
        weight.fill_(float("nan")) if weight.is_floating_point() else None
    torch.save(diverged, world / "diverged.pt")
    (world / "somebody.png").write_bytes(next((world / "q").iterdir()).read_bytes())
    return {file: file.read_bytes() for file in world.glob("*.gallery")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("info gone", "gone: "),
        ("query model.pt q", "model.pt: "),
        ("query empty.gallery q", "empty.gallery: contains no images"),
        ("calibrate empty.gallery q", "empty.gallery: contains no images"),
        ("build good.gallery q --checkpoint model.pt", "good.gallery: already exists"),
        ("build q g --checkpoint model.pt", "q: is a folder"),
        ("build new.gallery g --checkpoint diverged.pt", "diverged.pt: backbone.0.weight"),
        ("query good.gallery q --checkpoint diverged.pt --cross-model", "diverged.pt: backbone.0.weight"),
        ("query good.gallery q --checkpoint wide.pt", "wide.pt: is not the model"),
        ("add good.gallery q --checkpoint wide.pt", "wide.pt: is not the model"),
        ("calibrate good.gallery q --checkpoint wide.pt", "wide.pt: is not the model"),
        ("calibrate good.gallery somebody.png", "good.gallery: a threshold needs"),
        ("build new.gallery q --checkpoint model.pt --kind ivfpq", "index is 'ivfpq', which needs"),
        ("build new.gallery somebody.png --checkpoint model.pt --adapt-norm features", "--adapt-norm is given"),
        ("query good.gallery q --checkpoint wide.pt --cross-model", "features have 256 numbers"),
        ("query good.gallery model.pt", "model.pt: "),
        ("query good.gallery gone.png", "gone.png: no such"),
        ("remove good.gallery", "good.gallery: nothing to remove"),
        ("rename good.gallery nobody anna", "good.gallery: has no identity 'nobody'"),
        ("rename good.gallery 2 7502", "good.gallery: already has an identity '7502'; pass --merge"),
        ("rename good.gallery 2 nan", "new is 'nan'"),
        ("undo good.gallery", "good.gallery: has no change to undo"),
        ("build new.gallery g typo --checkpoint model.pt --skip-bad", "typo: no such"),
        ("migrate empty.gallery new.gallery", "empty.gallery: contains no images"),
        ("query good.gallery q --top 0", "--top is 0"),
        ("query good.gallery q --camera 77", "good.gallery: has no camera '77'"),
        ("query good.gallery somebody.png --other-cameras", "somebody.png: --other-cameras needs"),
        ("calibrate good.gallery q --false-accept-rate 1", "--false-accept-rate is 1.0"),
    ],
)
def test_bad_input_is_one_line_and_changes_no_file(
    in_world, world: Path, contents: dict[Path, bytes], arguments: str, message: str
) -> None:
    out = ("--out", "bad") if arguments.startswith("query") else ()
    status, _, text = in_world("search", *arguments.split(), *out)
    assert status == 2 and text.startswith(f"lreid search: {message}") and text.count("\n") == 1
    assert "cross_model=" not in text and not (world / "bad").exists()
    assert {file: file.read_bytes() for file in world.glob("*.gallery")} == contents
