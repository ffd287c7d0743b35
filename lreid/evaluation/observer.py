"""Observers of a run, whose hooks the trainer calls; an observer never changes the training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # an observer that reads only results needs no torch
    from torch import Tensor

    from lreid.data.loaders import Batch
    from lreid.data.records import Task
    from lreid.models.embedder import Embedder
    from lreid.results import Results


class Learner(Protocol):
    """Interface of a method with a model and a memory; the memory is empty or None if no images are stored."""

    model: Embedder
    memory: Any


class Observer:
    """Base class of all observers, whose hooks do nothing.

    An observer must leave training modes, gradients and random number generators as they were. An observer's state must
    include everything that it has measured within a task, so that a resumed run gives the same results.
    """

    def before_task(self, task: Task) -> None:
        """Prepare for a task before its first step; not called if a run resumes within the task."""

    def before_batch(self, batch: Batch) -> None:
        """Observe a batch, once before all updates with this batch."""

    def before_loss(self, batch: Batch) -> None:
        """Observe a batch before its loss is computed; with gradient accumulation, an update has several batches."""

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Observe the loss of a batch before its gradient is computed.

        Args:
            terms: loss terms by name, as scalars without weights.
            loss: weighted sum of the terms, a scalar.
            batches: number of batches in the update, which minimises the mean of their losses.
        """

    def after_step(self) -> None:
        """Observe the network after an update of its parameters."""

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Observe the end of an epoch, given its number (from 1), the task's number of epochs and the learning rate."""

    def after_task(self, task: Task) -> None:
        """Observe a task after its last update and before its evaluation."""

    def after_evaluation(self, task: Task) -> None:
        """Observe a task after the test sets were evaluated, before the method stores what it needs from the task."""

    def after_save(self, folder: Path, results: Results) -> None:
        """Observe the results so far, after a finished task was saved in the run folder; one process calls this."""

    def state_dict(self) -> dict[str, Any]:
        """Return all measurements of the current task, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned; called instead of :meth:`before_task`."""
