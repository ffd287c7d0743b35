"""Diagnostics after a switch to a new task: drift of old images' features, and norms of the loss gradient."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Benchmark, Task
from lreid.evaluation.drift import DriftRecorder
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.gradients import GradientRecorder
from lreid.evaluation.observer import Learner, Observer
from lreid.results import Results

DRIFT_IMAGES = 100  # number of images per set whose drift is measured


class SwitchObserver(Observer):
    """Measure feature drift and gradient norms in the first steps of a task."""

    def __init__(self, method: Learner, evaluator: Evaluator, results: Results, *, steps: int) -> None:
        self.method, self.evaluator, self.results, self.steps = method, evaluator, results, steps
        self.task = 0  # number of the current task
        self.drift: DriftRecorder | None = None
        self.gradients: GradientRecorder | None = None

    def before_task(self, task: Task) -> None:
        """From the second task on, select images from the memory and held-out images, to measure their drift."""
        self.task = task.index
        if self.task:
            stored = self.method.memory.images if self.method.memory else []
            sets = {"buffer": _evenly_spread(stored)} | self._held_out()
            self.drift = DriftRecorder(self.method.model, sets, steps=self.steps)
            self.gradients = GradientRecorder(self.method, steps=self.steps)

    def before_loss(self, batch: Batch) -> None:
        """Let the gradient recorder register its hooks in the network."""
        if self.gradients is not None:
            self.gradients.before_loss()

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Compute the norms of the loss gradient at the features of the batch."""
        if self.gradients is not None:
            self.gradients.after_loss(batch, loss)

    def after_step(self) -> None:
        """Record the feature drift and the gradient norms of the update."""
        if self.drift is not None and self.gradients is not None:
            self.drift.after_step()
            self.gradients.after_step()

    def after_task(self, task: Task) -> None:
        """Add the measurements of the task to the results."""
        if self.drift is not None and self.gradients is not None:
            self.results["drift"].append({"task": task.index, **self.drift.curves})
            self.results["gradient_norms"].append({"task": task.index, **self.gradients.norms})
        self.drift = self.gradients = None

    def state_dict(self) -> dict[str, Any]:
        """Return the images that were selected from the memory, and all measurements of the task."""
        if self.drift is None or self.gradients is None:
            return {}
        buffer = self.drift.images.get("buffer")  # the memory may hold other images now
        return {
            "task": self.task,
            "buffer": None if buffer is None else torch.from_numpy(np.stack(list(buffer))),
            "drift": self.drift.state_dict(),
            "norms": self.gradients.norms,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned; held-out images are read again."""
        if state:
            self.task = state["task"]
            sets = {} if state["buffer"] is None else {"buffer": state["buffer"].numpy()}
            sets |= self._held_out()
            self.drift = DriftRecorder(self.method.model, sets, steps=self.steps)
            self.drift.load_state_dict(state["drift"])
            self.gradients = GradientRecorder(self.method, steps=self.steps)
            self.gradients.norms = state["norms"]

    def _held_out(self) -> dict[str, np.ndarray]:
        """Read query images (n, H, W, 3) of each domain on which the model was trained before the current task."""
        return {
            f"held out: {test.name}": _evenly_spread(test.query)
            for test, first in ((each, each.test.first_task) for each in self.evaluator.tests)
            if test.test.kind == "seen" and first is not None and first < self.task
        }


def create(cfg: Any, benchmark: Benchmark, method: Learner, evaluator: Evaluator, results: Results) -> SwitchObserver:
    """Create the observer with ``EVAL.DRIFT_STEPS`` of a config."""
    return SwitchObserver(method, evaluator, results, steps=cfg.EVAL.DRIFT_STEPS)


def _evenly_spread(images: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Select at most ``DRIFT_IMAGES`` of the images (n, H, W, 3), evenly spaced; without images, the shape is (0,)."""
    rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), DRIFT_IMAGES)).astype(np.int64))
    return np.stack([images[row] for row in rows]) if len(images) else np.empty(0)
