"""Observers of a run: hooks that the trainer calls, and that never change what is learned."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.models.embedder import Embedder


class Learner(Protocol):
    """A method with its memory, which is empty or None if it keeps no images."""

    model: Embedder
    memory: Any


class Observer:
    """Base of all observers; every hook does nothing by default.

    An observer must leave modes, gradients and generators as they were. What it has gathered within a task belongs into
    its state, so that a resumed run writes the same.
    """

    def before_task(self, task: Task) -> None:
        """Called before the first step of a task, not when a run resumes within it."""

    def before_batch(self, batch: Batch) -> None:
        """Called once for a batch that comes in, before all updates with it."""

    def before_loss(self, batch: Batch) -> None:
        """Called before the loss of a batch is computed; there are several batches in an update that accumulates."""

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Called before the gradients of a loss are computed.

        Args:
            batch: what it is of.
            terms: scalars, not yet weighted.
            loss: scalar, their weighted sum.
            batches: batches of the update; the mean over their losses is minimised.
        """

    def after_step(self) -> None:
        """Called after each update of the parameters."""

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Called after the last update of an epoch, from 1, of so many in the task, made with that learning rate."""

    def after_task(self, task: Task) -> None:
        """Called after the last update of a task, before its evaluation."""

    def after_evaluation(self, task: Task) -> None:
        """Called after the test sets were evaluated, before the method ends the task."""

    def state_dict(self) -> dict[str, Any]:
        """Measurements in the current task so far: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`; called instead of :meth:`before_task`."""
