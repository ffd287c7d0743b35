"""Models by file and by name."""

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from example_files import write_checkpoint
from zoo_entries import write_entry

import lreid
from lreid import zoo
from lreid.checkpoint import load_checkpoint, save_checkpoint
from lreid.config import method_title
from lreid.errors import InputError
from lreid.gallery.commands import build
from lreid.gallery.images import list_images
from lreid.loading import lasting_name, model_config, read_checkpoint
from lreid.models.fingerprint import fingerprint


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An entry ``mine``, the checkpoint it was made of, and its folder to stand in."""
    write_checkpoint(tmp_path / "model.pt")
    write_entry(tmp_path / "zoo")
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path / "zoo"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_all_names_of_a_model_load_the_same_model(world: Path) -> None:
    wanted = lreid.load_model(world / "model.pt")
    assert not wanted.training
    images = np.random.default_rng(0).integers(0, 256, (3, wanted.height, wanted.width, 3), np.uint8)
    for source in ("zoo:mine", "mine", zoo.find("mine").weights, Path("zoo:mine"), "zoo:zoo/mine.json"):
        model = lreid.load_model(source)
        assert fingerprint(model) == fingerprint(wanted) and not model.training
        np.testing.assert_array_equal(model.extract(images), wanted.extract(images))
        assert model_config(source) == model_config("model.pt")
    assert model_config("mine", ["EVAL.FLIP", "True"]).EVAL.FLIP


def test_a_file_wins_over_an_entry(world: Path) -> None:
    write_checkpoint(world / "mine", seed=1)
    assert fingerprint(lreid.load_model("mine")) != fingerprint(lreid.load_model("zoo:mine"))


def test_stored_halves_become_float32() -> None:
    state = read_checkpoint("zoo:dwopp-synthetic-10")["model"]
    assert {value.dtype for value in state.values() if value.ndim > 1} == {torch.float16}
    model = lreid.load_model("zoo:dwopp-synthetic-10")
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name].to(value.dtype))


@pytest.mark.parametrize("card", zoo.cards(), ids=lambda card: card.name)
def test_cards_describe_their_networks(card: zoo.Card) -> None:
    model, cfg = lreid.load_model(f"zoo:{card.name}"), model_config(f"zoo:{card.name}")
    assert (card.backbone, card.height, card.width, card.dim) == (model.name, model.height, model.width, model.dim)
    assert card.neck == isinstance(model.neck, torch.nn.BatchNorm1d)
    assert card.parameters == sum(each.numel() for each in model.parameters())
    for stated, buffer in ((card.mean, model.mean), (card.std, model.std)):
        torch.testing.assert_close(255 * torch.tensor(stated), buffer.flatten())
    assert (card.method, card.benchmark, card.seed) == (method_title(cfg), cfg.BENCHMARK.NAME, cfg.SEED)
    assert (card.metric, card.ap) == (cfg.EVAL.METRIC, cfg.EVAL.AP)
    assert (card.camera_filter, card.flip) == (cfg.EVAL.CAMERA_FILTER, cfg.EVAL.FLIP)


def test_missing_models_are_refused(world: Path) -> None:
    for source, message in (
        ("gone.pt", "gone.pt: no such file"),
        ("folder/gone", "folder/gone: no such file"),
        ("min", "zoo:min: .*nearest name is mine"),
        ("zoo:min", "zoo:min: .*nearest name is mine"),
        (None, "load_model"),
        ("", "load_model"),
        (7, "load_model"),
        ("gone.safetensors", "gone.json: no such card"),
        (".", r"\.: contains no model"),
    ):
        with pytest.raises(InputError, match=message):
            lreid.load_model(source)
    zoo.find("mine").weights.write_bytes(b"cut")
    with pytest.raises(InputError, match="mine-.*.safetensors: is damaged"):
        lreid.load_model("mine")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("HEIGHT", "1000000000"),
        ("WIDTH", "-1"),
        ("MEAN", "[]"),
        ("MEAN", "[1.0, .nan, 0.0]"),
        ("STD", "[0.0, 1.0, 1.0]"),
    ],
)
def test_invalid_sizes_and_normalisations_are_refused(world: Path, key: str, value: str) -> None:
    state = load_checkpoint(world / "model.pt")
    tree = yaml.safe_load(state["config"])
    tree["INPUT"][key] = yaml.safe_load(value)
    save_checkpoint(world / "odd.pt", {"model": state["model"], "config": yaml.safe_dump(tree)})
    for use in (
        lreid.load_model,
        partial(build, "people.gallery", images=list_images([world / "model.pt"], "gallery")),
    ):
        with pytest.raises(InputError, match=f"odd.pt: .*INPUT.{key} is "):
            use(world / "odd.pt")
    assert not Path("people.gallery").exists()


def test_a_folder_stands_for_the_one_model_in_it(world: Path) -> None:
    wanted = fingerprint(lreid.load_model("zoo:mine"))
    assert fingerprint(lreid.load_model(world / "zoo")) == wanted  # as lreid zoo publish makes it
    assert lasting_name("zoo") == lasting_name(next((world / "zoo").glob("*.safetensors")))
    (world / "run/checkpoints").mkdir(parents=True)
    for task in ("task-09.pt", "task-10.pt"):
        write_checkpoint(world / "run/checkpoints" / task)
    (world / "run/checkpoints/task-09.pt").write_bytes(b"no model")
    assert fingerprint(lreid.load_model("run/")) == fingerprint(lreid.load_model("model.pt"))
    assert model_config("run/") == model_config("model.pt")
    (world / "zoo/other.onnx").touch()
    with pytest.raises(InputError, match=r"zoo: contains 2 models \(mine.*safetensors, other.onnx"):
        lreid.load_model(world / "zoo")


def test_a_repository_of_the_hub_is_loaded_like_a_folder(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Hub:
        @staticmethod
        def snapshot_download(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
            asked.append((repository, revision))
            assert not {"*.pt", "*.py", "*.bin", "*"} & set(allow_patterns)
            if repository != "somebody/mine":
                raise OSError("404 Client Error\nRepository Not Found")
            return str(world / "zoo")

    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub)
    assert fingerprint(lreid.load_model("hub:somebody/mine")) == fingerprint(lreid.load_model("zoo:mine"))
    lreid.load_model("hub:somebody/mine@v2")
    assert asked == [("somebody/mine", None), ("somebody/mine", "v2")]
    assert lasting_name("hub:somebody/mine@v2") == "hub:somebody/mine@v2"
    with pytest.raises(InputError, match="hub:somebody/gone: .*404 Client"):
        lreid.load_model("hub:somebody/gone")


def test_lasting_names(world: Path) -> None:
    assert lasting_name("zoo:mine") == lasting_name("mine") == lasting_name(Path("zoo:mine")) == "zoo:mine"
    assert lasting_name("model.pt") == os.path.abspath("model.pt")
    assert lasting_name("zoo/mine.safetensors") == os.path.abspath("zoo/mine.safetensors")
    assert lasting_name("zoo:zoo/mine.json") == f"zoo:{os.path.abspath('zoo/mine.json')}"
