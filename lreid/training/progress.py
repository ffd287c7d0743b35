"""Observers of every run: the history of the loss terms, and the progress bar; and the costs of the training."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.evaluation.observer import Observer
from lreid.models.embedder import Embedder
from lreid.results import Results

logger = logging.getLogger("lreid")

POINTS = 50  # number of entries of the history per task
BAR = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps [{elapsed}<{remaining}{postfix}]"
LINE_EVERY = 30.0  # seconds between two progress lines if there is no progress bar
FIRST_LINE = 5.0  # seconds from the first step to the first progress line


class LossHistory(Observer):
    """Record the mean of each loss term since the previous entry of the history."""

    def __init__(
        self, results: Results, log: Callable[[dict[str, float], int, str], None], epochs: Sequence[int]
    ) -> None:
        self.results, self.log, self.epochs = results, log, epochs
        self.task = 0
        self.sums: dict[str, Tensor] = {}  # on the device, because a copy to the CPU would wait for the device
        self.updates = 0  # number of updates in the sums

    def before_task(self, task: Task) -> None:
        """Reset the sums to zero."""
        self.task, self.sums, self.updates = task.index, {}, 0

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Add the terms of a batch to the sums."""
        for name, term in terms.items():
            self.sums[name] = self.sums.get(name, 0) + term.detach() / batches

    def after_step(self) -> None:
        """Count one update of the network."""
        self.updates += 1

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Add an entry with the mean loss terms since the previous entry; a task has a limited number of entries."""
        if epoch % max(1, epochs // POINTS) and epoch != epochs:
            return
        means = {name: total.item() / self.updates for name, total in self.sums.items()}
        self.sums, self.updates = {}, 0
        self.results["loss_history"].append({"task": self.task, "epoch": epoch, "lr": rate, **means})
        values = {f"train/{name}": value for name, value in {"lr": rate, **means}.items()}
        self.log(values, sum(self.epochs[: self.task]) + epoch, "epoch")

    def state_dict(self) -> dict[str, Any]:
        """Return the sums of the loss terms since the previous entry."""
        return {"task": self.task, "sums": self.sums, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.task, self.sums, self.updates = state["task"], dict(state["sums"]), state["updates"]


class Progress(Observer):
    """Show a progress bar with the time left and the last loss terms; outside a terminal, log lines instead.

    Args:
        task_steps: number of training steps of each task; the trainer updates it.
        shown: whether this process shows its progress.
    """

    def __init__(self, results: Results, task_steps: list[int], *, shown: bool) -> None:
        self.results, self.task_steps, self.shown = results, task_steps, shown
        self.bar = tqdm(disable=True)
        self.first = self.step = 0
        self.started = self.line_at = self.epoch_line_at = time.monotonic()

    @contextmanager
    def bar_from(self, step: int) -> Iterator[None]:
        """Show the bar within a context; ``step`` is the number of steps that an interrupted run has finished."""
        total, disable = sum(self.task_steps), None if self.shown else True  # None hides the bar outside a terminal
        self.bar = tqdm(total=total, initial=step, unit="step", disable=disable, leave=False, bar_format=BAR)
        self.first = self.step = step
        with logging_redirect_tqdm(), self.bar:
            yield

    def begin(self, phase: str, task: int | None = None) -> None:
        """Show a phase of the run, such as an evaluation; without a bar, log it. ``task`` counts from 0."""
        text = phase if task is None else f"task {task + 1}/{len(self.task_steps)}: {phase}"
        self.bar.set_description(text)
        if self.bar.disable:
            logger.info("%s", text)

    def before_batch(self, batch: Batch) -> None:
        """Count the batch; without a bar, log the time left from time to time, also within the first epoch."""
        self.bar.update()
        now, total = time.monotonic(), sum(self.task_steps)
        if self.step == self.first:  # the evaluation of the initial model is over
            self.started, self.line_at = now, now - max(LINE_EVERY - FIRST_LINE, 0)
        if self.bar.disable and now - self.line_at >= LINE_EVERY and self.step > self.first:
            left = (now - self.started) / (self.step - self.first) * (total - self.step) / 60
            self.line_at = now
            logger.info("step %d of %d, about %.0f min left", self.step, total, left)
        self.step += 1

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Show the last loss terms; without a bar, log the epoch from time to time."""
        entry = self.results["loss_history"][-1:] or [{}]
        terms = {name: f"{value:.3f}" for name, value in entry[0].items() if name not in ("task", "epoch", "lr")}
        self.bar.set_postfix(terms, refresh=False)
        if self.bar.disable and time.monotonic() - self.epoch_line_at >= LINE_EVERY:
            self.epoch_line_at = time.monotonic()
            losses = ", ".join(f"{name} {value}" for name, value in terms.items())
            task = len(self.results["mAP"]) + 1
            logger.info("task %d of %d, epoch %d of %d: %s", task, len(self.task_steps), epoch, epochs, losses)


class Costs:
    """Add the costs of the training to the results: elapsed time, CPU time and training images.

    The costs of a ``with`` block count, except those between :meth:`read` and :meth:`start`.
    """

    def __init__(self, results: Results, model: Embedder) -> None:
        self.results, self.model = results, model

    def start(self) -> None:
        """Measure from now on."""
        self.last = (time.perf_counter(), time.process_time(), self.model.images_trained)

    def read(self, *_: object) -> None:
        """Add the costs since the last call of this method or of :meth:`start`."""
        before, seconds = self.last, self.results["seconds"]
        self.start()
        wall, cpu, images = (now - first for first, now in zip(before, self.last, strict=True))
        seconds["train"] += wall
        seconds["train_cpu"] += cpu
        self.results["images_trained"] += int(images)
        self.results["images_per_second"] = round(self.results["images_trained"] / max(seconds["train"], 1e-9), 1)

    __enter__, __exit__ = start, read
