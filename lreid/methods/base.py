"""What a lifelong method is: one object with four hooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.models import Embedder


class Method:
    """Base of all methods; learns ``model`` task after task.

    A subclass lives in a file of its own, whose name is the method's name, and takes its options as keyword
    arguments: ``METHOD.TEMPERATURE`` of the config is ``temperature``.

    Attributes:
        batches: what it learns from: ``episodes`` of support and query images, or ``identities``, P x K images.
        neck: True where features go through a BatchNorm neck before a classifier and for retrieval (BoT).
        joint: True where all tasks are learned at once, as an upper bound.
        weights: factor of each loss term in the sum that is minimised; 1 for those not named.
        exemplars: images of past tasks kept.
    """

    batches: ClassVar[Literal["episodes", "identities"]] = "episodes"
    neck: ClassVar[bool] = False
    joint: ClassVar[bool] = False

    def __init__(self, model: Embedder) -> None:
        self.model = model
        self.weights: dict[str, float] = {}
        self.exemplars = 0

    def begin_task(self, task: Task) -> None:
        """Called before the first batch of a task, not when a run is taken up again within it."""

    def parameters(self) -> Iterable[Parameter]:
        """What is trained, asked for at the start of each task."""
        return self.model.parameters()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named loss terms (scalars, not yet weighted) of a batch; the model is in training mode."""
        raise NotImplementedError

    def end_task(self, task: Task) -> None:
        """Called after the last batch of a task; its images are not seen again."""

    def state_dict(self) -> dict[str, Any]:
        """All that the method needs to go on besides the model: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
