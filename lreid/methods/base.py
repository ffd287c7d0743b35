"""What a lifelong method is: one object with four hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.memory import ExemplarMemory, ExemplarStore, ImagePaths, budget_of
from lreid.models import Embedder


class Method:
    """Base of all methods; learns ``model`` task after task.

    A subclass lives in a file of its own, whose name is the method's name, and takes its options as keyword
    arguments: ``METHOD.TEMPERATURE`` of the config is ``temperature``.

    Attributes:
        batches: what it learns from: ``episodes`` of support and query images, ``identities``, P x K images, or a
            ``stream``, which shows every image once (methods of ``identities`` without exemplars mixed in can be given
            one too, see STREAM.SEGMENT).
        views: of every image in a batch, each with an augmentation of its own.
        pixels: True where it asks for ``batch.pixels`` and ``batch.paths``.
        neck: True where features go through a BatchNorm neck before a classifier and for retrieval (BoT).
        joint: True where all tasks are learned at once, as an upper bound.
        unused: options of its bases that it has no use for; a config that sets one to another value is refused.
        divisible: False where several processes cannot share a batch, since the method looks at gradients by itself.
        weights: factor of each loss term in the sum that is minimised; 1 for those not named.
        augment: how the run augments images, see :meth:`augmented`; set by the trainer.
        replayed: images that the method has drawn from its memory by itself so far.
        memory: images of past tasks; None where none are kept.
        exemplar_share: share of the identities of a batch that come from the memory; 0 draws from its identities
            and those of the task alike, None leaves the memory to the method.
    """

    batches: ClassVar[Literal["episodes", "identities", "stream"]] = "episodes"
    views: ClassVar[int] = 1
    pixels: ClassVar[bool] = False
    neck: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = ()
    divisible: ClassVar[bool] = True

    def __init__(self, model: Embedder) -> None:
        self.model = model
        self.weights: dict[str, float] = {}
        self.augment: Callable[..., np.ndarray] | None = None
        self.replayed = 0
        self.memory: ExemplarStore | None = None
        self.exemplar_share: float | None = None

    @property
    def exemplars(self) -> int:
        """Images of past tasks that are kept."""
        return len(self.memory) if self.memory is not None else 0

    def begin_task(self, task: Task) -> None:
        """Called before the first batch of a task, not when a run is taken up again within it."""

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """What is trained, asked for at the start of each task.

        Groups may hold a ``rate_factor`` that the learning rate is multiplied by.
        """
        return self.model.parameters()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named loss terms (scalars, not yet weighted) of a batch; the model is in training mode.

        It is asked for once for each of ``STREAM.ITERATIONS`` updates, and with ``TRAIN.ACCUMULATE`` for several
        batches in turn, before any of them has its :meth:`end_step`.
        """
        raise NotImplementedError

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """What is minimised (scalar): the sum of :meth:`loss`'s terms, each times its weight."""
        first, *others = [self.weights.get(name, 1.0) * term for name, term in terms.items()]
        return sum(others, start=first)

    def augmented(self, pixels: np.ndarray, *, seed: int) -> Tensor:
        """Images (n, 3, H, W) to learn from, where the model is, from (n, H, W, 3) uint8 of the input size.

        Outside a run, where :attr:`augment` is None, they are normalised only.
        """
        if self.augment is None:
            return self.model.normalise(torch.from_numpy(pixels))
        return torch.from_numpy(self.augment(pixels, seed=seed)).to(self.model.mean.device)

    def class_scores(self, features: Tensor) -> Tensor | None:
        """What its own classifier says of all classes so far (n, C), for instance logits; None where it has none.

        Args:
            features: (n, dim) of :meth:`lreid.models.Embedder.extract`, where the model is.
        """
        return None

    def end_step(self, batch: Batch) -> None:
        """Called for each batch after the last update with it."""

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
        exemplar_mib: a second limit, MiB of pixels of the network's input size; 0 is none.
        store: ``images`` keeps pixels, so that files of past tasks may be deleted; ``paths`` keeps the names of the
            same images and reads the files whenever they are drawn.
        selection: which images of an identity are kept, one of ``selections``; see :func:`~lreid.memory.select`.
        fill_memory, least_images: which identities keep how many, see :class:`~lreid.memory.ExemplarMemory`.
        exemplar_share: see :class:`Method`; in [0, 1).
        options: of the method.

    Attributes:
        selections: those that the method can be given; ``importance`` is for methods that score images.
    """

    selections: ClassVar[tuple[str, ...]] = ("herding", "nearest", "random")
    memory: ExemplarMemory

    def __init__(
        self,
        model: Embedder,
        *,
        exemplars: int = 500,
        exemplar_mib: float = 0.0,
        store: str = "images",
        selection: str = "herding",
        fill_memory: bool = False,
        least_images: int = 2,
        exemplar_share: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        if least_images < 1 or not 0 <= exemplar_share < 1 or selection not in self.selections:
            raise InputError(
                "METHOD.LEAST_IMAGES must be 1 or more, METHOD.EXEMPLAR_SHARE in [0, 1) and METHOD.SELECTION one of "
                f"{', '.join(self.selections)}; got {least_images}, {exemplar_share} and {selection!r}"
            )
        self.memory = ExemplarMemory(
            checked_budget(model, exemplars, exemplar_mib, store),
            least=least_images,
            selection=selection,
            fill=fill_memory,
            # The seed of the run as it is: to draw one here would change all that is drawn after it.
            seed=torch.initial_seed(),
        )
        self.exemplar_share, self.store = exemplar_share, store

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        if self.memory.budget == 0:  # no need to look at the images
            return
        size: dict[str, Any] = {"height": self.model.height, "width": self.model.width}
        if self.store == "paths":
            images: Sequence[np.ndarray] = ImagePaths([record.path for record in task.records], **size)
        else:
            images = Images(task.records, **size, cache_gib=0)
        labels = np.array([record.pid for record in task.records], np.int64)
        self.memory.add(images, labels, **self.exemplar_values(task))

    def exemplar_values(self, task: Task) -> dict[str, np.ndarray]:
        """What :meth:`ExemplarMemory.add <lreid.memory.ExemplarMemory.add>` chooses images by: here their features."""
        if self.memory.selection == "random":  # no need to look at the images
            return {"values": np.empty((len(task.records), 0), np.float32)}
        return {"values": self.model.extract([record.path for record in task.records])}  # (n, dim)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"])


def checked_budget(model: Embedder, exemplars: int, exemplar_mib: float, store: str) -> int:
    """Images that a memory may keep.

    Args:
        model: of whose input size they are.
        exemplars, exemplar_mib, store: see :class:`ExemplarMethod`.

    Raises:
        InputError: an option is out of range.
    """
    if min(exemplars, exemplar_mib) < 0 or store not in ("images", "paths"):
        raise InputError(
            "METHOD.EXEMPLARS and METHOD.EXEMPLAR_MIB must be 0 or more and METHOD.STORE images or paths; "
            f"got {exemplars}, {exemplar_mib} and {store!r}"
        )
    return budget_of(exemplars, exemplar_mib, height=model.height, width=model.width)
