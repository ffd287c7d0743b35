"""Measure classification accuracy after every task and, if requested, within tasks."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lreid.build import test_image_options
from lreid.classification.evaluator import AccuracyEvaluator, ClassLearner, Rows
from lreid.config_keys import Config
from lreid.data.loaders import Batch
from lreid.data.records import Benchmark, Task
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.observer import Observer
from lreid.results import Results, add_accuracies

logger = logging.getLogger("lreid")


@dataclass(eq=False)
class AccuracyObserver(Observer):
    """Classify held-out images after every task and, for learning curves, within tasks (Contrast Scoring, Figs. 3-6).

    A learning curve counts each image of the stream once, even if several updates use it. Images from the memory are
    not counted. The classifiers of :class:`AccuracyEvaluator` are fitted to all images of the current task and the
    memory.

    Args:
        evaluator: evaluator with the held-out images.
        results: content of ``results.json``, to which this class adds ``accuracy`` with its summary, and ``alignment``.
            If ``every`` is above 0, this class also adds ``images_seen`` and ``accuracy_curve``. A point of the
            accuracy curve consists of the index of the task, the total number of images, and the mean accuracy over
            tasks so far.
        every: number of images between two points of the curve; 0 measures only after tasks.
    """

    learner: ClassLearner
    evaluator: AccuracyEvaluator
    tasks: Sequence[Task]
    results: Results
    every: int = 0

    def before_batch(self, batch: Batch) -> None:
        """Count the images of a batch. Each batch is counted once, even if several updates use it."""
        if self.every:
            incoming = len(batch.labels) if batch.exemplars is None else int((batch.exemplars < 0).sum())
            self.results["images_seen"] += incoming // batch.views

    def after_step(self) -> None:
        """Add a point to the learning curve if the number of images has passed a multiple of ``every``."""
        points, seen = self.results["accuracy_curve"], self.results["images_seen"]
        if not self.every or seen // self.every <= (points[-1]["images"] // self.every if points else 0):
            return
        task = self.tasks[len(self.results["mAP"])]  # one row per finished task
        rows = self._accuracies(task).items()
        means = {name: {kind: round(sum(row) / len(row), 4) for kind, row in kinds.items()} for name, kinds in rows}
        points.append({"task": task.index, "images": seen, "accuracy": means})

    def after_evaluation(self, task: Task) -> None:
        """Add a row to each accuracy matrix, and log the accuracies."""
        started = time.perf_counter()
        add_accuracies(self.results, self._accuracies(task))
        self.results["alignment"].append(self.evaluator.alignment(self.learner, task))
        self.results["seconds"]["evaluate"] += time.perf_counter() - started
        logger.info("%s\n", accuracy_line(self.results))

    def _accuracies(self, task: Task) -> Rows:
        """Compute accuracies after a task, without images that cannot be read."""
        skipped = set(self.results["skipped"])
        records = tuple(record for record in task.records if record.path not in skipped)
        return self.evaluator.evaluate(self.learner, replace(task, records=records))


def create(
    cfg: Config, benchmark: Benchmark, method: ClassLearner, evaluator: Evaluator, results: Results
) -> AccuracyObserver:
    """Create the observer that ``EVAL.ACCURACY`` enables."""
    probe = {key: cfg.EVAL[f"PROBE_{key.upper()}"] for key in ("optimizer", "lr", "epochs")} | {"seed": cfg.SEED}
    accuracies = AccuracyEvaluator(
        benchmark.tasks, **test_image_options(cfg), probe=probe, augment=cfg.EVAL.PROBE_INPUT == "augmented"
    )
    return AccuracyObserver(method, accuracies, benchmark.tasks, results, every=cfg.EVAL.CURVE_IMAGES)


def accuracy_line(results: Results) -> str:
    """Write a line with the accuracies of all classifiers after the last task (``accuracy_forgetting`` in brackets)."""
    parts = []
    for name, kinds in results["accuracy_summary"].items():
        pairs = [(summary["accuracy"], summary["accuracy_forgetting"]) for summary in kinds.values()]
        figures = [f"{accuracy:.1f}" + ("" if drop is None else f" ({drop:.1f})") for accuracy, drop in pairs]
        parts.append(f"{name} {' / '.join(figures)}")
    text = ", ".join(parts)
    brackets = " (and accuracy_forgetting: a drop is positive)" * ("(" in text)
    return f"accuracy{brackets} in per cent, class- / task-incremental: {text}"
