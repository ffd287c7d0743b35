"""Whole runs with exemplars: limits, files that are gone, files that cannot be read."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import FEW, of_files, tiny_config

from lreid.data.records import Task
from lreid.methods.bot_ft import BoTFineTuning
from lreid.training.run import train

pytestmark = pytest.mark.slow

SMALL = FEW | {"BENCHMARK.TASKS_PER_DATASET": 2, "TRAIN.EPOCHS": 2}


config = partial(tiny_config, SMALL)


def course(results: dict[str, Any], terms: tuple[str, ...]) -> tuple[Any, ...]:
    """What a run learned: its loss terms, all figures and the number of images it looked at."""
    history = [[entry[term] for term in terms] for entry in results["loss_history"]]
    return history, results["mAP"], results["identity_ap"], results["images_trained"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dwopp", "aka", "pass_proto"])
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


replayed = partial(of_files, **FEW, METHOD__NAME="bot_ft", TRAIN__EPOCHS=2, DATA__CACHE_GIB=0.0)


def test_files_of_past_tasks_may_be_deleted(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory keeps pixels."""
    whole = train(replayed(people, METHOD__EXEMPLARS=30), tmp_path / "whole")
    end_task = BoTFineTuning.end_task
    sizes = []

    def forgetful(self: BoTFineTuning, task: Task) -> None:
        end_task(self, task)
        sizes.append(self.exemplars)
        for record in task.records:
            Path(record.path).unlink()

    monkeypatch.setattr(BoTFineTuning, "end_task", forgetful)
    results = train(replayed(people, METHOD__EXEMPLARS=30), tmp_path / "run")
    assert sizes == [16, 24, 24] and results["exemplars"] == 24  # of 30: 4, 3 and 2 an identity
    assert course(results, ("softmax", "triplet")) == course(whole, ("softmax", "triplet"))
    memory = torch.load(tmp_path / "run" / "checkpoints" / "task-03.pt")["method"]["memory"]
    assert memory["images"].shape == (24, 32, 16, 3) and memory["images"].dtype == torch.uint8
    assert np.unique(memory["labels"]).tolist() == list(range(12))


def test_bad_images_are_no_exemplars(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train005.png", "train020.png"):
        (people / name).write_bytes(b"no image")
    results = train(replayed(people, METHOD__EXEMPLARS=500, DATA__SKIP_BAD_IMAGES=True), tmp_path / "run")
    assert results["skipped_images"] == 2 and results["exemplars"] == 46


def test_workers_do_not_change_the_figures(tmp_path: Path) -> None:
    one, two = (train(config(METHOD__NAME="erd", DATA__WORKERS=workers), tmp_path / str(workers)) for workers in (0, 2))
    assert "align" in one["loss_history"][-1] and one["exemplars"] == 48
    assert one["loss_history"] == two["loss_history"] and one["mAP"] == two["mAP"]
