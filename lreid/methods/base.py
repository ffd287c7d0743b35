"""A lifelong method: one object with a few hooks; a simple method needs only ``loss``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn import functional as F

from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import require
from lreid.losses._ops import class_means
from lreid.memory.exemplars import ExemplarMemory, ExemplarStore, ImagePaths, budget_of
from lreid.models.embedder import Embedder, frozen_copy
from lreid.rules import Rule


class Method:
    """Base class of all methods; trains ``model`` task by task.

    Each subclass has its own file, named like the method, and takes its options as keyword arguments:
    ``METHOD.TEMPERATURE`` in the config is ``temperature``. It passes further ones to this class, so that every method
    can replay exemplars, which are added to its batches by default.

    Args:
        model: the network.

    Attributes:
        batches: kind of batches: ``episodes`` of support and query images, ``identities`` (P x K images), or a
            ``stream``, which shows every image once (methods with ``identities`` can also use one, see STREAM.SEGMENT).
        views: number of views of every image in a batch, each with its own augmentation.
        pixels: whether it needs ``batch.pixels`` and ``batch.paths``.
        keeps: purpose of the entries of :meth:`state_dict`: ``network``, ``domain`` (its style), ``identity`` (one row
            each), or ``template`` (one row per identity with features of people). All other entries are exemplars,
            which are counted separately, or a few numbers.
        neck: whether a BatchNorm neck follows the features, before a classifier and for retrieval (BoT).
        defaults: different defaults of inherited options; a method passes on ``CLASS.defaults | options``.
        unused: options of its bases that have no effect; a config that sets one to a different value is refused.
        divisible: False if several processes cannot share a batch, because the method computes gradients itself.
        selections: selections of exemplars that the method supports; ``importance`` is for methods that score images.
        finishing: description of :meth:`finish_task`, for log lines.
        keeps_teacher: whether it needs :attr:`teacher` from the second task on.
        teacher_in_training: let the teacher normalise with the statistics of the batch.
        network: the module that is trained and copied as a teacher: the model, or a module that contains it.
        teacher: the frozen network after the previous task; None before there is one.
        weights: factor of each loss term in the minimised sum; 1 for terms that are not listed.
        augment: the run's augmentation, see :meth:`augmented`; set by the trainer.
        replayed: number of images that the method itself has drawn from its memory so far.
        memory: images of past tasks.
        exemplar_share: as above; None if nothing is added to batches.
    """

    batches: ClassVar[Literal["episodes", "identities", "stream"]] = "episodes"
    views: ClassVar[int] = 1
    pixels: ClassVar[bool] = False
    keeps: ClassVar[Mapping[str, str]] = {"teacher": "network"}
    neck: ClassVar[bool] = False
    unused: ClassVar[tuple[str, ...]] = ()
    divisible: ClassVar[bool] = True
    selections: ClassVar[tuple[str, ...]] = ("herding", "nearest", "random")
    defaults: ClassVar[Mapping[str, Any]] = {}
    finishing: ClassVar[str] = "averaging weights"
    keeps_teacher: bool = False
    teacher_in_training: bool = False

    def __init__(
        self,
        model: Embedder,
        *,
        exemplars: Annotated[int, Rule("total number of images of past tasks that are kept")] = 0,
        exemplar_mib: Annotated[
            float, Rule("second limit, MiB of pixels at the network's input size; 0 is none")
        ] = 0.0,
        store: Annotated[
            str,
            Rule(
                "images keeps pixels, so that files of past tasks may be deleted; paths keeps the names of "
                "the same images and reads the files whenever they are drawn",
                choices=("images", "paths"),
            ),
        ] = "images",
        selection: Annotated[
            str,
            Rule(
                "which images of an identity are kept: herding, nearest or random; importance where images are scored"
            ),
        ] = "herding",
        fill_memory: Annotated[bool, Rule("use the room that equal shares leave")] = False,
        least_images: Annotated[int, Rule("minimum number of images of an identity that keeps any", least=1)] = 2,
        exemplar_share: Annotated[
            float,
            Rule(
                "share of a batch that comes from the memory, in [0, 1); 0 is natural frequency: an exemplar "
                "is seen as often as an image of the task. Exemplars come on top of the batch",
                least=0,
                below=1,
            ),
        ] = 0.0,
    ) -> None:
        require(selection in self.selections, "selection", selection, f"one of {', '.join(self.selections)}")
        self.model = model
        self.network: nn.Module = model
        self.teacher: nn.Module | None = None
        self.weights: dict[str, float] = {}
        self.augment: Callable[..., Tensor] | None = None
        self.replayed = 0
        self.store, self.selection = store, selection
        budget = budget_of(exemplars, exemplar_mib, height=model.height, width=model.width)
        # The run's seed itself: drawing a new one here would change all later random numbers.
        seed = torch.initial_seed()
        self.memory: ExemplarStore = ExemplarMemory(
            budget, least=least_images, selection=selection, fill=fill_memory, seed=seed
        )
        self.exemplar_share: float | None = exemplar_share if budget else None

    @property
    def exemplars(self) -> int:
        """The number of images of past tasks that are kept."""
        return len(self.memory)

    @property
    def needs_past(self) -> bool:
        """Whether it can continue training a network only together with the state from its earlier tasks."""
        return set(self.state_dict()) != {"teacher", "memory"} or self.memory.budget > 0

    def begin_task(self, task: Task) -> None:
        """Called before the first batch of a task, not when a run resumes within it."""

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """The parameters to train, read at the start of each task.

        Groups may contain a ``rate_factor``, which multiplies the learning rate.
        """
        return self.network.parameters()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named loss terms (scalars, not yet weighted) of a batch; the model is in training mode.

        It is called once for each of ``STREAM.ITERATIONS`` updates. With ``TRAIN.ACCUMULATE`` it is called for several
        batches before :meth:`end_step` is called for any of them.
        """
        raise NotImplementedError

    @property
    def smallest_batch(self) -> int:
        """Minimum number of images in a batch: 2 if :attr:`needs_pairs`, otherwise 1."""
        return 2 if self.needs_pairs else 1

    @cached_property
    def needs_pairs(self) -> bool:
        """Whether BatchNorm cannot normalise a single image in training: a neck, or maps of a single position."""
        parts = [each for each in vars(self).values() if isinstance(each, nn.Module)]
        if any(isinstance(each, nn.BatchNorm1d) for part in parts for each in part.modules()):
            return True
        image = self.model.mean.new_zeros(1, 3, self.model.height, self.model.width)
        devices = [image.device] if image.is_cuda else []
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                copy.deepcopy(self.model).train()(image)
        except ValueError:  # the condition of torch's BatchNorm
            return True
        return False

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """The loss to minimise (scalar): the weighted sum of the terms of :meth:`loss`."""
        first, *others = [self.weights.get(name, 1.0) * term for name, term in terms.items()]
        return sum(others, start=first)

    def augmented(self, pixels: np.ndarray, *, seed: int) -> Tensor:
        """Training images (n, 3, H, W) on the model's device, from (n, H, W, 3) uint8 of the input size.

        Outside a run :attr:`augment` is None, and images are only normalised.
        """
        if self.augment is None:
            return self.model.normalise(torch.from_numpy(pixels))
        return self.augment(pixels, seed=seed)

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Scores of the method's own classifier for all classes so far (n, C), such as logits; None if it has none.

        Args:
            features: (n, dim) from :meth:`lreid.models.Embedder.extract`, on the model's device.
        """
        return None

    def mean_directions(self, task: Task) -> Tensor:
        """Mean directions of the images of each class of a task: unit vectors (N, dim) on the CPU, by ascending label.

        Initialising new classifier rows with them does not damage a trained network (LSTKC, AAAI 2024, official code).
        The row of a class without readable images is zero.
        """
        means, classes = class_means(self.features_of(task), torch.tensor([record.pid for record in task.records]))
        rows = means.new_zeros(len(task.classes), means.shape[1])
        rows[torch.searchsorted(torch.tensor(sorted(task.classes)), classes)] = F.normalize(means, dim=1)
        return rows

    def features_of(self, task: Task) -> Tensor:
        """Features (n, dim) float32 on the CPU of all images of a task by the model, without augmentation."""
        return torch.from_numpy(self.model.extract([record.path for record in task.records]))

    def figures(self) -> dict[str, float]:
        """Figures that the method itself reports after a task, by name, for ``results.json``."""
        return {}

    def stored(self, identities: int) -> dict[str, int]:
        """The bytes stored between tasks besides the network and exemplars.

        Args:
            identities: number of identities trained so far.

        Returns:
            Bytes of all other ``networks`` (previous ones and parts for training only), per ``domain``, and per
            ``identity``, templates included; and ``templates``, 1 if features of people are stored, otherwise 0. If the
            network has an adapter, also the bytes of this ``adapter``, which is all that a task changes in the network.
        """
        state = self.state_dict()
        by_kind: dict[str, list[Tensor]] = {}
        for name, kind in self.keeps.items():
            by_kind.setdefault(kind, []).extend(_tensors(state.get(name)))
        total = {kind: sum(each.nbytes for each in tensors) for kind, tensors in by_kind.items()}
        # Templates may cover only the identities of the last task, with one row each.
        templates = sum(each.nbytes // max(len(each), 1) for each in by_kind.get("template", ()))
        return {
            "networks": total.get("network", 0),
            "domain": total.get("domain", 0),
            "identity": total.get("identity", 0) // max(identities, 1) + templates,
            "templates": int(templates > 0),
        } | ({"adapter": sum(each.nbytes for each in adapter)} if (adapter := self.model.adapter_parameters()) else {})

    def end_step(self, batch: Batch) -> None:
        """Called for each batch after its last update."""

    def finishing_images(self, task: Task) -> int:
        """Number of images that :meth:`finish_task` passes through the network, for estimates of time."""
        return 0

    def finish_task(self, task: Task) -> None:
        """Called after the last update of a task and before its evaluation, which sees changes to the model."""

    def end_task(self, task: Task) -> None:
        """Called after a task's evaluation, while its images are still available; keeps teacher and exemplars."""
        self.model.merge_adapter()
        if self.keeps_teacher:
            self.teacher = self.frozen_network()
        if isinstance(self.memory, ExemplarMemory) and self.memory.budget:
            size: dict[str, Any] = {"height": self.model.height, "width": self.model.width}
            images: Sequence[np.ndarray] = (
                ImagePaths([record.path for record in task.records], **size)
                if self.store == "paths"
                else Images(task.records, **size, cache_gib=0)
            )
            labels = np.array([record.pid for record in task.records], np.int64)
            self.memory.add(images, labels, **self.exemplar_values(task))

    def frozen_network(self) -> nn.Module:
        """A copy of the current network as the next teacher."""
        return frozen_copy(self.network).train(self.teacher_in_training)

    def exemplar_values(self, task: Task) -> dict[str, np.ndarray]:
        """The values by which :meth:`lreid.memory.ExemplarMemory.add` selects images: here their features."""
        if self.selection == "random":  # this selection does not need features
            return {"values": np.empty((len(task.records), 0), np.float32)}
        return {"values": self.model.extract([record.path for record in task.records])}  # (n, dim)

    def state_dict(self) -> dict[str, Any]:
        """The method's state for a resumed run, besides the model: tensors and plain values."""
        teacher = self.teacher.state_dict() if self.teacher is not None else None
        return {"teacher": teacher, "memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned.

        Raises:
            KeyError: the method needs a teacher or a memory, and the state has none.
        """
        self.teacher = None
        teacher = state["teacher"] if self.keeps_teacher else None
        if teacher is not None:
            self.teacher = self.frozen_network()
            self.teacher.load_state_dict(teacher)
        if self.memory.budget or "memory" in state:
            self.memory.load_state_dict(state["memory"])


def _tensors(state: Any) -> Iterator[Tensor]:
    """All tensors within plain containers, counters of batches left out."""
    if isinstance(state, Tensor):
        if state.ndim:
            yield state
    elif isinstance(state, (dict, list, tuple)):
        for each in state.values() if isinstance(state, dict) else state:
            yield from _tensors(each)
