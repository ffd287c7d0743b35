"""Learning curves within tasks: accuracy of classification against the images of the stream that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.evaluation.accuracy_evaluator import AccuracyEvaluator, ClassLearner
from lreid.evaluation.observer import Observer
from lreid.results import Results


class CurveObserver(Observer):
    """Classifies held-out images whenever so many more images of the stream were seen (Contrast Scoring, Figs. 3-6).

    An image counts as often as it comes, however many updates are made with it; images out of the memory do not count.
    The classifiers are those of :class:`AccuracyEvaluator`: the probes know the images of the task at hand, all of
    them, and of past tasks those in the memory.

    Args:
        learner: what is trained.
        accuracy: holds the held-out images.
        tasks: of the benchmark.
        results: gets ``images_seen``, and in ``accuracy_curve`` the index of the task, the images seen in all, and of
            each classifier the mean over the tasks so far.
        every: images between two points.
    """

    def __init__(
        self, learner: ClassLearner, accuracy: AccuracyEvaluator, tasks: Sequence[Task], results: Results, *, every: int
    ) -> None:
        self.learner, self.accuracy, self.tasks, self.results, self.every = learner, accuracy, tasks, results, every
        self.task = 0

    def before_task(self, task: Task) -> None:
        """Notes which task it is."""
        self.task = task.index

    def before_batch(self, batch: Batch) -> None:
        """Counts the images of a batch, once for all updates with it."""
        incoming = len(batch.labels) if batch.exemplars is None else int((batch.exemplars < 0).sum())
        self.results["images_seen"] += incoming // batch.views

    def after_step(self) -> None:
        """Classifies where the number of images has passed another multiple."""
        points, seen = self.results["accuracy_curve"], self.results["images_seen"]
        if seen // self.every <= (points[-1]["images"] // self.every if points else 0):
            return
        modules = [(module, module.training) for module in self.learner.model.modules()]
        skipped, task = set(self.results["skipped"]), self.tasks[self.task]
        task = replace(task, records=tuple(each for each in task.records if each.path not in skipped))
        rows = self.accuracy.evaluate(self.learner, task)
        for module, training in modules:  # extract puts all parts in the mode of the whole
            module.training = training
        means = {
            name: {kind: round(sum(row) / len(row), 4) for kind, row in kinds.items()} for name, kinds in rows.items()
        }
        points.append({"task": self.task, "images": seen, "accuracy": means})

    def state_dict(self) -> dict[str, Any]:
        """The task."""
        return {"task": self.task}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self.task = state["task"]
