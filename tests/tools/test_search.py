"""The command line of searching: the life of a gallery, and one line for bad input that leaves all files alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from example_files import write_checkpoint

from lreid import gallery as search

LISTED = "9 images of 4 identities (2, 7502, 15002 …) by 6 cameras (1, 2, 3 …)"


def test_the_life_of_a_gallery(tool: Callable[..., int], world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert tool("search.py", *arguments) == 0
        return capsys.readouterr().out

    assert said("build", "life", "g", "--checkpoint", "model.pt") == f"life: {LISTED}\n"
    assert said("add", "life", "g", "q").startswith("life: 8 images added, 9 already in it or skipped; they show ")
    assert "keep their name; remove them first" in said("add", "life", "q", "--identity", "anna")
    assert said("remove", "life", "--identity", "2") == "life: 4 images removed\n"
    assert "13\n" in said("info", "life").splitlines(keepends=True)[0]
    assert said("calibrate", "life", "q", "--false-accept-rate", "0.5").startswith("life: threshold 0.")
    text = said("query", "life", "q", "--top", "2", "--out", "found")
    answers = json.loads((world / "found" / "matches.json").read_text())["queries"]
    unknown = sum(each["unknown"] for each in answers)
    assert f"8 queries in 13 images: {8 - unknown} recognised, {unknown} unknown at threshold " in text
    assert len(text.splitlines()) <= 4 and (world / "found" / "matches.html").exists()


@pytest.mark.slow
def test_a_gallery_moves_and_is_narrowed(
    tool: Callable[..., int], world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        assert tool("search.py", *arguments) == 0
        return capsys.readouterr().out

    where = "moving"
    write_checkpoint(world / "newer.pt", seed=1)
    assert said("build", where, "g", "--checkpoint", "model.pt") == f"{where}: {LISTED}\n"
    old = said("info", where)
    said("query", where, "q", "--only-camera", "1", "--not-identity", "2", "--top", "9", "--out", "narrow")
    answers = json.loads((world / "narrow" / "matches.json").read_text())["queries"]
    assert {(match["camera"], match["identity"] == "2") for each in answers for match in each["matches"]} == {
        ("1", False)
    }
    said("query", where, "q", "--since", "5", "--out", "later")  # no times are known
    assert [each["matches"] for each in json.loads((world / "later" / "matches.json").read_text())["queries"]] == 8 * [
        []
    ]
    assert said("reindex", where, "--checkpoint", "newer.pt") == (
        f"{where}: 9 images with features of the new model, 9 extracted now; "
        "calibrate the gallery again, or return to the old model with rollback\n"
    )
    assert said("info", where) != old
    assert said("rollback", where).startswith(f"{where}: model ")
    now = said("info", where)
    assert "next" not in old and "next" in now  # the newer version is set aside, not deleted
    was, now = ([line for line in text.splitlines() if not line.startswith("related files")] for text in (old, now))
    assert now == was
    told = said("migrate", where, "copy", "--shards", "2", "--kind", "hnsw")
    assert told == f"copy: 9 images, 100.0 % of sampled matches as in {where}\n"
    assert "hnsw" in said("info", "copy")


@pytest.fixture(scope="module")
def damage(world: Path) -> dict[Path, bytes]:
    """Galleries and checkpoints that something is wrong with, beside a good gallery; what is in the galleries."""
    images = search.list_images([world / "g"], "")
    search.build(world / "good.gallery", world / "model.pt", images, device="cpu")
    search.build(world / "empty.gallery", world / "model.pt", images, device="cpu")
    search.remove(world / "empty.gallery", [image.path for image in images])
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
        ("info gone", "gone: no such file; build a gallery first"),
        ("query model.pt q", "model.pt: not a gallery, or cut short"),
        ("query empty.gallery q", "empty.gallery: contains no images; add some"),
        ("calibrate empty.gallery q", "empty.gallery: contains no images; add some"),
        ("build good.gallery q --checkpoint model.pt", "good.gallery: already exists"),
        ("build q g --checkpoint model.pt", "q: is a folder; pass the name of the new gallery first, and then the"),
        (
            "build new.gallery g --checkpoint diverged.pt",
            "diverged.pt: backbone.0.weight is not a tensor of finite numbers",
        ),
        (
            "query good.gallery q --checkpoint diverged.pt --cross-model",
            "diverged.pt: backbone.0.weight is not a tensor of finite numbers",
        ),
        ("query good.gallery q --checkpoint wide.pt", "wide.pt: is not the model whose features are in the"),
        ("add good.gallery q --checkpoint wide.pt", "wide.pt: is not the model whose features are in the"),
        ("calibrate good.gallery q --checkpoint wide.pt", "wide.pt: is not the model whose features are in the"),
        ("calibrate good.gallery somebody.png", "good.gallery: a threshold needs images with identities"),
        ("build new.gallery q --checkpoint model.pt --kind ivfpq", "index is 'ivfpq', but ivfpq needs"),
        (
            "build new.gallery somebody.png --checkpoint model.pt --adapt-norm features",
            "--adapt-norm is given, but the cameras are unknown",
        ),
        (
            "query good.gallery q --checkpoint wide.pt --cross-model",
            "wide.pt: its features have 256 numbers, but those in the gallery 16; they cannot be compared",
        ),
        ("query good.gallery model.pt", "model.pt: image cannot be decoded"),
        ("query good.gallery gone.png", "gone.png: no such folder or file"),
        ("remove good.gallery", "good.gallery: nothing to remove; name images, or --identity NAME"),
        ("build new.gallery g typo --checkpoint model.pt --skip-bad", "typo: no such folder or file; correct"),
        ("migrate empty.gallery new.gallery", "empty.gallery: contains no images; add some"),
        ("query good.gallery q --top 0", "--top is 0; request at least one match"),
        ("query good.gallery q --camera 77", "good.gallery: the gallery has no camera '77'"),
        (
            "query good.gallery somebody.png --other-cameras",
            "somebody.png: --other-cameras needs the camera of the image; pass --camera NAME, or use a name like",
        ),
        ("calibrate good.gallery q --false-accept-rate 1", "--false-accept-rate is 1.0; it must be at least 0"),
    ],
)
def test_bad_input_is_one_line_and_changes_no_file(
    tool: Callable[..., int],
    world: Path,
    damage: dict[Path, bytes],
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    message: str,
) -> None:
    out = ("--out", "bad") if arguments.startswith("query") else ()
    assert tool("search.py", *arguments.split(), *out) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"search.py: {message}") and text.count("\n") == 1
    assert "cross_model=" not in text and not (world / "bad").exists()
    assert {file: file.read_bytes() for file in world.glob("*.gallery")} == damage
