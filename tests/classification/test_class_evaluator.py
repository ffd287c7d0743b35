"""Accuracies of a learner that sees colours only, counted by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coloured import write_class
from torch import Tensor

from lreid.classification import image_folder
from lreid.classification.evaluator import AccuracyEvaluator
from lreid.classification.observer import accuracy_line
from lreid.data.images import read_image
from lreid.data.records import Record, Task
from lreid.errors import InputError
from lreid.memory import StreamMemory
from lreid.results import add_accuracies, summarise_accuracies

OPTIONS = {"height": 16, "width": 16, "cache_gib": 1.0, "skip_bad": False, "batch_size": 4}
COLOURS = {"a": "red", "b": "lime", "c": "blue", "d": "yellow"}
TEST = {"a": ["red", "lime", "red", "red"], "b": ["lime", "lime"], "c": ["blue", "yellow"], "d": ["yellow", "red"]}


class Colours:
    """Instead of a network: the mean colour of an image."""

    mean = torch.zeros(1)

    def extract(self, images: Any, *, batch_size: int) -> np.ndarray:
        read = [read_image(each) if isinstance(each, str) else np.asarray(each) for each in images]
        return np.array([image.mean((0, 1)) for image in read], np.float32).reshape(-1, 3)


class Learner:
    """Knows the colours of all classes so far, or of none, and keeps the images it is given."""

    def __init__(self, classes: int = 0, stored: dict[int, str] | None = None) -> None:
        self.model, self.classes = Colours(), classes
        self.memory = None
        if stored is not None:
            self.memory = StreamMemory(5)
            for label, name in stored.items():
                image = np.broadcast_to(colour(name), (1, 16, 16, 3)).astype(np.uint8)
                self.memory.add(image, np.array([label]))

    def augmented(self, pixels: np.ndarray, *, seed: int) -> Tensor:
        self.views = [*getattr(self, "views", []), (pixels.mean((1, 2)), seed)]
        return torch.from_numpy(255 - pixels)  # whoever trains on it takes red for cyan

    def class_scores(self, features: Tensor) -> Tensor | None:
        if not self.classes:
            return None
        rows = torch.stack([torch.from_numpy(colour(name)) for name in COLOURS.values()])[: self.classes]
        return -torch.cdist(features, rows.float())


def colour(name: str) -> np.ndarray:
    return np.array({"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0)}[name])


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    """Classes a and b, then c and d; some test images have the colour of another class."""
    for name, mine in COLOURS.items():
        write_class(tmp_path / "train" / name, [mine] * 3)
        write_class(tmp_path / "test" / name, TEST[name])
    data_set = image_folder.load(tmp_path)

    def of(records: tuple[Record, ...], index: int) -> tuple[Record, ...]:
        return tuple(record for record in records if record.pid // 2 == index)

    return [Task(index, f"task {index}", of(data_set.train, index), of(data_set.held_out, index)) for index in (0, 1)]


def rounded(rows: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    return {name: {kind: np.round(row, 2).tolist() for kind, row in each.items()} for name, each in rows.items()}


def test_accuracies_by_hand(tasks: list[Task]) -> None:
    evaluator = AccuracyEvaluator(tasks, **OPTIONS)
    state = torch.get_rng_state()
    first = {"class": [83.33], "task": [83.33]}  # the green image of class a is wrong
    assert rounded(evaluator.evaluate(Learner(2), tasks[0])) == dict.fromkeys(
        ("classifier", "linear", "knn", "nearest_mean"), first
    )
    # Of the past a red image of class a was kept. The memory's image of class c is none of the past: it is left out.
    rows = rounded(evaluator.evaluate(Learner(4, {0: "red", 2: "red"}), tasks[1]))
    assert rows["classifier"] == {"class": [83.33, 50.0], "task": [83.33, 75.0]}
    probes = {
        "class": [50.0, 50.0],  # red images of a, blue one of c, yellow one of d
        "task": [66.67, 75.0],  # all of a, since b is not known; the red one of d is rather yellow than blue
    }
    assert rows["linear"] == rows["knn"] == rows["nearest_mean"] == probes
    assert torch.equal(torch.get_rng_state(), state)


def test_without_memory_past_tasks_have_accuracy_zero(tasks: list[Task]) -> None:
    evaluator = AccuracyEvaluator(tasks, **OPTIONS)
    for learner in (Learner(), Learner(stored={})):
        rows = evaluator.evaluate(learner, tasks[1])
        assert set(rows) == {"linear", "knn", "nearest_mean"}  # it has no classifier
        assert all(each[kind] == [0.0, {"class": 75.0, "task": 75.0}[kind]] for each in rows.values() for kind in each)


def test_rows_become_matrices_with_a_summary() -> None:
    results: dict[str, Any] = {"accuracy": {}, "accuracy_summary": {}}
    add_accuracies(results, {"knn": {"class": [200 / 3], "task": [100.0]}})
    assert accuracy_line(results).endswith("knn 66.7 / 100.0") and "forgetting" not in accuracy_line(results)
    add_accuracies(results, {"knn": {"class": [10.0, 90.0], "task": [95.0, 85.0]}})
    assert results["accuracy"] == {"knn": {"class": [[66.6667], [10.0, 90.0]], "task": [[100.0], [95.0, 85.0]]}}
    assert results["accuracy_summary"]["knn"]["class"] == summarise_accuracies([[66.6667], [10.0, 90.0]])
    assert accuracy_line(results).endswith("knn 50.0 (56.7) / 90.0 (5.0)")
    assert "accuracy_forgetting" in accuracy_line(results)


def test_a_task_without_test_images_is_refused(tasks: list[Task]) -> None:
    with pytest.raises(InputError, match="^market 1/1: .*accuracy=False"):
        AccuracyEvaluator([tasks[0], Task(1, "market 1/1", tasks[1].records)], **OPTIONS)


def test_domains_that_share_their_classes(tasks: list[Task]) -> None:
    """Labels of the second domain are behind those of the first: red and blue are one class, green and yellow."""
    domains = [replace(task, shared_classes=2) for task in tasks]
    evaluator = AccuracyEvaluator(domains, **OPTIONS)
    rows = rounded(evaluator.evaluate(Learner(4, {0: "red"}), domains[1]))
    # Wrong are the green image of a, the yellow one of c and the red one of d.
    assert rows["classifier"] == {"class": [83.33, 50.0], "task": [83.33, 50.0]}
    assert rows["knn"]["class"] == rows["knn"]["task"]


def test_probe_of_the_papers_trains_on_augmented_images_of_task_and_memory(tasks: list[Task]) -> None:
    """Inverted here, so its classifier knows red as lime and blue; the other classifiers see images as they are."""
    learner = Learner(stored={0: "red", 2: "red"})
    evaluator = AccuracyEvaluator(tasks, **OPTIONS, augment=True, probe={"epochs": 3, "lr": 1e-5, "batch_size": 4})
    state = torch.get_rng_state()
    rows = rounded(evaluator.evaluate(learner, tasks[1]))
    assert rows["knn"]["class"] == [50.0, 50.0] and rows["linear"]["class"] != [50.0, 50.0]
    assert torch.equal(torch.get_rng_state(), state)
    drawn, seeds = zip(*learner.views, strict=True)
    assert len(set(seeds)) == 6 and sum(map(len, drawn)) == 3 * 7  # six images of the task, one of the past
    colours = {tuple(each.astype(int)) for each in np.concatenate(drawn)}
    assert colours == {tuple(colour(name)) for name in ("red", "blue", "yellow")}


def test_options_of_the_probe_reach_it(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def scores(train: np.ndarray, labels: np.ndarray, test: np.ndarray, **options: Any) -> np.ndarray:
        asked.update(options)
        return np.zeros((len(test), 2))

    monkeypatch.setattr("lreid.classification.evaluator.linear_probe_scores", scores)
    probe = {"optimizer": "adam", "lr": 3e-4, "epochs": 500, "seed": 1}
    AccuracyEvaluator(tasks, **OPTIONS, probe=probe).evaluate(Learner(), tasks[0])
    assert asked == probe | {"augmented": None}
