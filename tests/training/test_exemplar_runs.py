"""Whole runs with exemplars: limits, files that are gone, files that cannot be read."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import FEW, tiny_config

from lreid.config_keys import Config
from lreid.data.records import Task
from lreid.data.synthetic import draw, load_synthetic
from lreid.methods.bot_ft import BoTFineTuning
from lreid.training.run import train

pytestmark = pytest.mark.slow

SMALL = FEW | {"BENCHMARK.TASKS_PER_DATASET": 2, "TRAIN.EPOCHS": 2}


config = partial(tiny_config, SMALL)


def course(results: dict[str, Any], terms: tuple[str, ...]) -> tuple[Any, ...]:
    """What a run learned: its loss terms, all figures and the number of images it looked at."""
    history = [[entry[term] for term in terms] for entry in results["loss_history"]]
    return history, results["mAP"], results["identity_ap"], results["images_trained"]


@pytest.mark.parametrize(
    ("name", "options", "base", "terms"),
    [
        ("lwf_plus", {"DISTILLATION_WEIGHT": 0.0}, "bot_ft_plus", ("softmax", "triplet")),
        ("erd", {"EXEMPLARS": 0}, "dmml_ft", ("dmml",)),
        ("ida", {"DISTILLATION_WEIGHT": 0.0}, "dmml_ft", ("dmml",)),
    ],
)
def test_at_its_limit_a_run_is_that_of_its_base(
    name: str, options: dict[str, Any], base: str, terms: tuple[str, ...], tmp_path: Path
) -> None:
    results = []
    for method, chosen in ((name, options), (base, {})):
        keys = {f"METHOD__{key}": value for key, value in chosen.items()}
        results.append(train(config(METHOD__NAME=method, **keys), tmp_path / method))
    assert course(results[0], terms) == course(results[1], terms)
    if "EXEMPLARS" in options:
        assert results[0]["exemplars"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dmml_ft", "dwopp", "decoupled", "ida", "aka", "pass_proto"])
def test_any_method_replays_exemplars(name: str, tmp_path: Path) -> None:
    """Of two tasks of six identities: the second is learned from images of all twelve."""
    results = [
        train(config(METHOD__NAME=name, METHOD__EXEMPLARS=exemplars), tmp_path / str(exemplars))
        for exemplars in (0, 24)
    ]
    assert [each["exemplars"] for each in results] == [0, 24]
    first, second = (
        [{key: entry[key] for key in entry if key != "lr"} for entry in each["loss_history"]] for each in results
    )
    assert first[:2] == second[:2] and first[2:] != second[2:]
    memory = torch.load(tmp_path / "24" / "checkpoints" / "task-02.pt", weights_only=True)["method"]["memory"]
    assert sorted(memory["labels"].tolist()) == sorted(2 * list(range(12)))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A CSV data set of files, three domains of four training identities with four images each."""
    folder = tmp_path / "people"
    folder.mkdir()
    drawn = load_synthetic(
        "plaza", train_identities=12, test_identities=4, images_per_identity=4, distractors=0, seed=0
    )
    rows = []
    for split in ("train", "query", "gallery"):
        pids = sorted({record.pid for record in getattr(drawn, split)})
        for number, record in enumerate(getattr(drawn, split)):
            name = f"{split}{number:03d}.png"
            Image.fromarray(draw(record.path)).save(folder / name)
            domain = "abc"[pids.index(record.pid) // 4] if split == "train" else "abc"[pids.index(record.pid) % 3]
            rows.append((name, f"{split == 'train'}-{record.pid}", record.camid, split, domain))
    with open(folder / "index.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "pid", "camid", "split", "domain"), *rows])
    return folder


def of_files(people: Path, **changes: Any) -> Config:
    return config(
        BENCHMARK__TRAIN=[f"csv:{people}/index.csv"],
        BENCHMARK__TASKS_PER_DATASET=1,
        METHOD__NAME="bot_ft",
        DATA__CACHE_GIB=0.0,
        **changes,
    )


def test_files_of_past_tasks_may_be_deleted(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory keeps pixels."""
    whole = train(of_files(people, METHOD__EXEMPLARS=30), tmp_path / "whole")
    end_task = BoTFineTuning.end_task
    sizes = []

    def forgetful(self: BoTFineTuning, task: Task) -> None:
        end_task(self, task)
        sizes.append(self.exemplars)
        for record in task.records:
            Path(record.path).unlink()

    monkeypatch.setattr(BoTFineTuning, "end_task", forgetful)
    results = train(of_files(people, METHOD__EXEMPLARS=30), tmp_path / "run")
    assert sizes == [16, 24, 24] and results["exemplars"] == 24  # of 30: 4, 3 and 2 an identity
    assert course(results, ("softmax", "triplet")) == course(whole, ("softmax", "triplet"))
    memory = torch.load(tmp_path / "run" / "checkpoints" / "task-03.pt")["method"]["memory"]
    assert memory["images"].shape == (24, 32, 16, 3) and memory["images"].dtype == torch.uint8
    assert np.unique(memory["labels"]).tolist() == list(range(12))


def test_bad_images_are_no_exemplars(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train005.png", "train020.png"):
        (people / name).write_bytes(b"no image")
    results = train(of_files(people, METHOD__EXEMPLARS=500, DATA__SKIP_BAD_IMAGES=True), tmp_path / "run")
    assert results["skipped_images"] == 2 and results["exemplars"] == 46


def test_workers_do_not_change_the_figures(tmp_path: Path) -> None:
    one, two = (train(config(METHOD__NAME="erd", DATA__WORKERS=workers), tmp_path / str(workers)) for workers in (0, 2))
    assert "align" in one["loss_history"][-1] and one["exemplars"] == 48
    assert one["loss_history"] == two["loss_history"] and one["mAP"] == two["mAP"]
