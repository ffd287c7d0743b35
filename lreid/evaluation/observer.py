"""Observers of a run: hooks that the trainer calls and that never influence training."""

from typing import Any, Protocol

from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.models.embedder import Embedder


class Learner(Protocol):
    """A method with a model and a memory; the memory is empty or None if the method stores no images."""

    model: Embedder
    memory: Any


class Observer:
    """Base class of all observers; by default, every hook does nothing.

    An observer must restore training modes, gradients and random generators. Data that it collects within a task must
    be in its state, so that a resumed run gives the same results.
    """

    def before_task(self, task: Task) -> None:
        """Called before the first step of a task, but not when a run resumes within the task."""

    def before_batch(self, batch: Batch) -> None:
        """Called once per batch, before all updates by this batch."""

    def before_loss(self, batch: Batch) -> None:
        """Called before the loss of a batch is computed; an update with gradient accumulation has several batches."""

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Called after the loss of a batch is computed, before its gradients.

        Args:
            batch: the batch of the loss.
            terms: loss terms, unweighted scalars by name.
            loss: scalar, the weighted sum of the terms.
            batches: number of batches in the update, which minimises the mean of their losses.
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
        """The measurements of the current task so far: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned; called instead of :meth:`before_task`."""
