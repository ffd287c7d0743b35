"""What a lifelong method is: one object with four hooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.memory import SELECTIONS, ExemplarMemory
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
        memory: images of past tasks, which the next batches are drawn from too; None where none are kept.
        exemplar_share: share of the identities of a batch that come from the memory; 0 draws from its identities
            and those of the task alike.
    """

    batches: ClassVar[Literal["episodes", "identities"]] = "episodes"
    neck: ClassVar[bool] = False
    joint: ClassVar[bool] = False

    def __init__(self, model: Embedder) -> None:
        self.model = model
        self.weights: dict[str, float] = {}
        self.memory: ExemplarMemory | None = None
        self.exemplar_share = 0.0

    @property
    def exemplars(self) -> int:
        """Images of past tasks that are kept."""
        return len(self.memory) if self.memory is not None else 0

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


class ExemplarMethod(Method):
    """Put before a method among the bases of a class, it adds a memory of exemplars.

    Args:
        model: the network.
        exemplars: images kept in all; with 0 the method is the one without exemplars.
        selection: which images of an identity are kept: ``herding``, ``nearest`` to the mean, or ``random``.
        least_images: of an identity that are worth keeping, see :class:`~lreid.memory.ExemplarMemory`.
        exemplar_share: see :class:`Method`; in [0, 1).
        options: of the method.
    """

    def __init__(
        self, model: Embedder, *, exemplars: int = 500, selection: str = "herding", least_images: int = 2,
        exemplar_share: float = 0.0, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, **options)
        if exemplars < 0 or least_images < 1 or not 0 <= exemplar_share < 1 or selection not in SELECTIONS:
            raise InputError(
                "METHOD.EXEMPLARS must be 0 or more, METHOD.LEAST_IMAGES 1 or more, METHOD.EXEMPLAR_SHARE in [0, 1) "
                f"and METHOD.SELECTION one of {', '.join(SELECTIONS)}; "
                f"got {exemplars}, {least_images}, {exemplar_share} and {selection!r}"
            )
        # The seed of the run as it is: to draw one here would change all that is drawn after it.
        seed = torch.initial_seed()
        self.memory = ExemplarMemory(exemplars, least=least_images, selection=selection, seed=seed)
        self.exemplar_share = exemplar_share

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        images = Images(task.records, height=self.model.height, width=self.model.width, cache_gib=0)
        features = self.model.extract([record.path for record in task.records])  # (n, dim)
        self.memory.add(images, images.pids, features)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"])
