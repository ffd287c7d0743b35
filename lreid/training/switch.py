"""What is looked at when one task follows another: how far old images move, and how hard the loss pulls at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.data.records import Task
from lreid.evaluation import DriftRecorder, Evaluator, GradientRecorder
from lreid.methods import Method

IMAGES = 100  # of each set whose drift is watched


class SwitchWatch:
    """Watches stored images, and test images of places that were learned before, through the first steps of a task.

    Args:
        method: is about to learn the task.
        evaluator: holds the test images.
        task: not the first one.
        steps: that are looked at.

    Attributes:
        drift, gradients: what does the looking.
    """

    def __init__(self, method: Method, evaluator: Evaluator, task: Task, steps: int) -> None:
        sets: dict[str, Sequence[np.ndarray] | np.ndarray] = {"buffer": method.memory.images if method.memory else []}
        for test, (query, _) in zip(evaluator.tests, evaluator.images, strict=True):
            if test.kind == "seen" and test.first_task is not None and test.first_task < task.index:
                sets[f"held out: {test.name}"] = query
        chosen = {
            name: np.stack([images[row] for row in _spread(len(images))])
            for name, images in sets.items()
            if len(images)
        }
        self.task = task.index
        self.drift = DriftRecorder(method.model, chosen, steps=steps)
        self.gradients = GradientRecorder(method.model, steps=steps)

    def write(self, results: dict[str, Any]) -> None:
        """Puts the curves into the content of ``results.json``."""
        results["drift"].append({"task": self.task, **self.drift.curves})
        results["gradient_norms"].append({"task": self.task, **self.gradients.norms})


def _spread(count: int) -> np.ndarray:
    """At most ``IMAGES`` of ``count`` places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, IMAGES)).astype(np.int64))
