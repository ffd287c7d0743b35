"""Observers of a run: objects with hooks that the trainer calls; observers never influence training."""

from typing import Any, Protocol

from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.models.embedder import Embedder


class Learner(Protocol):
    """Interface of a method with a model and a memory, which is empty or None if no images are stored."""

    model: Embedder
    memory: Any


class Observer:
    """Base class of all observers; by default, every hook does nothing.

    An observer must restore training modes, gradients and random generators. An observer's state must include all data
    that the observer collects within a task, so that a resumed run gives the same results.
    """

    def before_task(self, task: Task) -> None:
        """Run before the first step of a task, but not if a run resumes within the task."""

    def before_batch(self, batch: Batch) -> None:
        """Run once per batch, before all updates by this batch."""

    def before_loss(self, batch: Batch) -> None:
        """Run before the loss of a batch is computed; an update with gradient accumulation has several batches."""

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Run after the loss of a batch is computed, before the gradients are computed.

        Args:
            batch: the batch of the loss.
            terms: loss terms, unweighted scalars by name.
            loss: scalar, the weighted sum of the terms.
            batches: number of batches in the update, which minimises the mean loss of these batches.
        """

    def after_step(self) -> None:
        """Run after each update of the parameters."""

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Run after each epoch, with its number (from 1), the task's number of epochs, and the learning rate."""

    def after_task(self, task: Task) -> None:
        """Run after the last update of a task, before the evaluation of the task."""

    def after_evaluation(self, task: Task) -> None:
        """Run after the test sets were evaluated, before the method ends the task."""

    def state_dict(self) -> dict[str, Any]:
        """Return the measurements of the current task so far, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned; runs instead of :meth:`before_task`."""
