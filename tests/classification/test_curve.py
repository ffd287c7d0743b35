"""Points of the learning curve within tasks."""

from pathlib import Path
from typing import Any

import pytest
from class_archives import squares, write_cifar10
from tiny import FEW, as_arguments, train_interrupted

from lreid.config import load_config
from lreid.config_keys import Config
from lreid.training.run import train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("any_checksum")]


def config(root: Path, **changes: Any) -> Config:
    """Two tasks of two classes in segments of four; 24 images a task."""
    keys: dict[str, Any] = FEW | {
        "BENCHMARK.TRAIN": ["cifar10"],
        "BENCHMARK.TASKS_PER_DATASET": 2,
        "DATA.ROOT": str(root),
        "INPUT.HEIGHT": 16,
        "INPUT.WIDTH": 16,
        "METHOD.NAME": "er",
        "METHOD.EXEMPLARS": 6,
        "STREAM.SEGMENT": 4,
        "TRAIN.EPOCHS": 1,
        "TRAIN.CHECKPOINT_STEPS": 1,
        "EVAL.ACCURACY": True,
        "EVAL.PROBE_EPOCHS": 2,
    }
    keys |= {key.replace("__", "."): value for key, value in changes.items()}
    return load_config([], as_arguments(keys))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_cifar10(tmp_path / "cifar-10-batches-py", squares(4, train=12, test=2))
    return tmp_path


def test_points_stand_at_images_of_the_stream_and_change_nothing(root: Path) -> None:
    plain = train(config(root), root / "plain")
    watched = train(config(root, EVAL__CURVE_IMAGES=10, STREAM__ITERATIONS=1), root / "watched")
    assert plain["accuracy_curve"] == [] and watched["images_seen"] == 48
    for key in ("mAP", "accuracy", "loss_history"):
        assert watched[key] == plain[key]
    points = watched["accuracy_curve"]
    assert [(point["task"], point["images"]) for point in points] == [(0, 12), (0, 20), (1, 32), (1, 40)]
    for point in points:
        assert set(point["accuracy"]) == {"classifier", "linear", "knn", "nearest_mean"}
        assert all(0 <= value <= 100 for kinds in point["accuracy"].values() for value in kinds.values())


def test_the_last_point_of_a_task_is_its_row(root: Path) -> None:
    results = train(config(root, EVAL__CURVE_IMAGES=24), root / "run")
    for point, row in zip(results["accuracy_curve"], results["accuracy"]["classifier"]["class"], strict=True):
        assert point["accuracy"]["classifier"]["class"] == pytest.approx(sum(row) / len(row), abs=1e-3)


def test_images_count_once_and_resumed_runs_keep_the_curve(root: Path) -> None:
    changes = {"EVAL__CURVE_IMAGES": 10, "STREAM__ITERATIONS": 2, "TRAIN__EPOCHS": 2}
    whole = train(config(root, **changes), root / "whole")
    assert whole["images_seen"] == 2 * 48
    for epochs in (1, 3):
        out = root / f"broken{epochs}"
        train_interrupted(config(root, **changes), out, epochs)
        again = train(config(root, **changes), out, resume=True)
        assert again["accuracy_curve"] == whole["accuracy_curve"] and again["images_seen"] == 96
