"""Observers of a run: hooks that the trainer calls and that never influence training."""

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

    An observer must restore modes, gradients and generators. Data that it collects within a task belong to its state,
    so that a resumed run gives the same results.
    """

    def before_task(self, task: Task) -> None:
        """Called before the first step of a task, not when a run resumes within it."""

    def before_batch(self, batch: Batch) -> None:
        """Called once per incoming batch, before all updates with it."""

    def before_loss(self, batch: Batch) -> None:
        """Called before the loss of a batch is computed; an update with gradient accumulation has several batches."""

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Called before the gradients of a loss are computed.

        Args:
            batch: the batch of the loss.
            terms: unweighted scalars.
            loss: scalar, their weighted sum.
            batches: number of batches in the update; the mean over their losses is minimised.
        """

    def after_step(self) -> None:
        """Called after each update of the parameters."""

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Called after each epoch with its number (from 1), the number of epochs of the task, and the learning rate."""

    def after_task(self, task: Task) -> None:
        """Called after the last update of a task, before its evaluation."""

    def after_evaluation(self, task: Task) -> None:
        """Called after the test sets were evaluated, before the method ends the task."""

    def state_dict(self) -> dict[str, Any]:
        """Measurements in the current task so far: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`; called instead of :meth:`before_task`."""
