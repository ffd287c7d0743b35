"""Whole runs with exemplars: limits, files that are gone, files that cannot be read."""

from functools import partial
from pathlib import Path

import pytest
import torch
from tiny import FEW, csv_config, tiny_config

from lreid.training.run import train

pytestmark = pytest.mark.slow

SMALL = FEW | {"BENCHMARK.TASKS_PER_DATASET": 2, "TRAIN.EPOCHS": 2}


config = partial(tiny_config, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dwopp", "pass_proto"])
def test_method_without_own_memory_replays_exemplars(name: str, tmp_path: Path) -> None:
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


replayed = partial(csv_config, **FEW, METHOD__NAME="bot_ft", TRAIN__EPOCHS=2, DATA__CACHE_GIB=0.0)


def test_unreadable_images_are_not_stored_as_exemplars(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train005.png", "train020.png"):
        (people / name).write_bytes(b"no image")
    results = train(replayed(people, METHOD__EXEMPLARS=500, DATA__SKIP_BAD_IMAGES=True), tmp_path / "run")
    assert results["skipped_images"] == 2 and results["exemplars"] == 46


def test_workers_do_not_change_results(tmp_path: Path) -> None:
    one, two = (train(config(METHOD__NAME="erd", DATA__WORKERS=workers), tmp_path / str(workers)) for workers in (0, 2))
    assert "align" in one["loss_history"][-1] and one["exemplars"] == 48
    assert one["loss_history"] == two["loss_history"] and one["mAP"] == two["mAP"]
