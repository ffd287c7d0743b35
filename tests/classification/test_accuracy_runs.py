"""Whole runs on a folder of classes with the accuracy of classification after every task."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coloured import write_squares
from tiny import FEW, tiny_config

from lreid.config_keys import Config
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.evaluation import Observer
from lreid.results import summarise_accuracies
from lreid.training.run import train

pytestmark = pytest.mark.slow

KINDS = ("class", "task")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_squares(tmp_path_factory.mktemp("classes") / "squares")


def config(home: Path, *, name: str = "er", **changes: Any) -> Config:
    """Two classes a task."""
    keys = {
        "BENCHMARK.TRAIN": [f"folder:{home}"],
        "BENCHMARK.TASKS_PER_DATASET": 2,
        "INPUT.WIDTH": 32,
        "METHOD.NAME": name,
        "EVAL.ACCURACY": True,
    }
    if name == "er":
        keys["METHOD.EXEMPLARS"] = 6  # of sixteen images
    return tiny_config(FEW, keys, **changes)


@pytest.fixture(scope="module")
def unbroken(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    train(config(home), out)
    return out


def test_results_hold_accuracies_and_their_summary(unbroken: Path) -> None:
    results = json.loads((unbroken / "results.json").read_text())
    assert list(results["accuracy"]) == ["classifier", "linear", "knn", "nearest_mean"]
    for name, kinds in results["accuracy"].items():
        assert tuple(kinds) == KINDS
        for kind, matrix in kinds.items():
            assert [len(row) for row in matrix] == [1, 2]
            assert all(value in (0, 25, 50, 75, 100) for row in matrix for value in row)  # of four images
            assert results["accuracy_summary"][name][kind] == summarise_accuracies(matrix)
        assert all(one <= other for one, other in zip(*(np.ravel(kinds[kind][-1]) for kind in KINDS), strict=True))
    assert results["accuracy"]["knn"]["task"][0] == [100.0]  # squares of one colour are no riddle
    (gallery,) = results["galleries"]
    assert (gallery["queries"], gallery["gallery"], gallery["valid_queries"]) == (4, 4, 4)


def test_accuracy_changes_no_other_results(home: Path, unbroken: Path, tmp_path: Path) -> None:
    expected = json.loads((unbroken / "results.json").read_text())
    results = train(config(home, EVAL__ACCURACY=False), tmp_path / "run")
    assert results["accuracy"] == results["accuracy_summary"] == {}
    for key in ("mAP", "identity_ap", "loss_history", "exemplars", "summary"):
        assert results[key] == expected[key]


def test_resumed_run_keeps_its_rows(home: Path, unbroken: Path, tmp_path: Path) -> None:
    class Interrupt(Observer):
        def after_evaluation(self, task: Task) -> None:
            if task.index == 1:
                raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(config(home), out, observers={"interrupt": Interrupt()})
    results = train(config(home), out, resume=True)
    expected = json.loads((unbroken / "results.json").read_text())
    assert results["accuracy"] == expected["accuracy"]
    assert results["accuracy_summary"] == expected["accuracy_summary"]


@pytest.mark.parametrize(
    ("name", "classifiers"),
    [
        ("cclis", ["classifier", "linear", "knn", "nearest_mean"]),
        ("contrast_scoring", ["linear", "knn", "nearest_mean"]),
        ("joint", ["linear", "knn", "nearest_mean"]),
    ],
)
def test_other_methods(
    name: str, classifiers: list[str], home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lreid")
    cfg = config(home, name=name, TRAIN__EPOCHS=1)
    results = train(cfg, tmp_path / "run")
    assert list(results["accuracy"]) == classifiers
    tasks = 1 if name == "joint" else 2  # at once all classes are of one task
    assert all(len(kinds["class"]) == tasks for kinds in results["accuracy"].values())
    assert f"class- / task-incremental: {classifiers[0]} " in caplog.text


def test_missing_test_images_are_refused_before_training(home: Path, tmp_path: Path) -> None:
    cfg = config(home, BENCHMARK__TRAIN=["synthetic:plaza"])
    with pytest.raises(InputError, match="^plaza 1/2: .*EVAL.ACCURACY False"):
        train(cfg, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_alignment_with_the_memory_is_kept(unbroken: Path, home: Path, tmp_path: Path) -> None:
    first, second = json.loads((unbroken / "results.json").read_text())["alignment"]
    assert set(first) == {"0"} and set(second) <= {"0", "1"} and second
    values = [value for row in (first, second) for value in row.values()]
    assert min(values) > 0.5 and max(values) < 1 + 1e-6  # nearly equal squares
    assert train(config(home, name="dmml_ft"), tmp_path / "run")["alignment"] == [{}, {}]
