"""The base class of lifelong methods, with a few hooks; a simple method overrides only ``loss``."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
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
from lreid.utils.rules import Rule

__all__ = ["Batch", "Embedder", "Method", "Rule", "Task"]  # what the file of a method needs


class Method:
    """Base class of all lifelong learning methods; a method defines how ``model`` is trained, task by task.

    Each subclass has its own file with the name of the method. Options are keyword arguments: the config key
    ``METHOD.TEMPERATURE`` sets the argument ``temperature``. A subclass passes the options that it does not define to
    this class, so every method can replay exemplars. By default, stored exemplars are added to the training batches.

    Args:
        model: the network to train.
        store: ``images`` stores pixels, so that image files of past tasks may be deleted. ``paths`` stores file names
            and reads the files whenever exemplars are drawn.
        least_images: minimum number of images per stored identity. A small memory stores fewer identities.
        exemplar_share: share of exemplars in a batch, in [0, 1). With 0, an exemplar is drawn as often as an image of
            the task. Exemplars are added to the images of the batch, which becomes larger.

    Attributes:
        batches: kind of training batches: ``episodes`` (support and query images), ``identities`` (P x K images), or
            ``stream`` (every image once). Methods with ``identities`` can also train on a stream (config key
            ``STREAM.SEGMENT``).
        views: number of views of every image in a batch, each with its own augmentation.
        pixels: whether the method reads ``batch.pixels`` and ``batch.paths``.
        saves: names of attributes that :meth:`state_dict` contains in addition. If a name has dots, its key in the
            state is the part after the last dot. A subclass lists only the names that it adds. A mapping also gives the
            kind of each attribute; :meth:`stored` adds up the bytes of each kind. The kinds are ``network``, ``domain``
            (style of a domain), ``identity`` (one row per identity), and ``template`` (one row per identity, computed
            from features of people). Generators and single numbers have the kind "".
        copies: names of attributes whose value is a frozen copy of a network or None. Each name maps to the name of the
            function that makes the copy; :meth:`state_dict` contains all copies. Their kind is ``network``.
        neck: whether the model has a BatchNorm neck (BoT) after the features; the classifier and retrieval then use the
            neck's output.
        defaults: new defaults of inherited options; the constructor of the method passes ``CLASS.defaults | options``
            to the base class.
        unused: inherited options that have no effect in this method; lreid refuses a config that changes one of them.
        divisible: whether a batch can be divided among several processes.
        selections: names of the rules by which the method can select exemplars; ``importance`` is for methods that
            score images.
        finishing: short description of what :meth:`finish_task` does, for log lines.
        keeps_teacher: whether the method needs :attr:`teacher` from the second task on.
        teacher_in_training: whether the teacher is in training mode, so that its BatchNorm uses the statistics of the
            batch.
        network: the module to train and to copy as a teacher: the model, or a module that contains the model.
        teacher: frozen copy of the network after the previous task, whose outputs carry no gradients; None in the first
            task.
        weights: weight of each loss term in the sum to minimise, 1 for terms that are not listed.
        augment: the data augmentation of the run, see :meth:`augmented`; the trainer sets this attribute.
        seed: seed of the run.
        generator: source of the method's own random numbers; a method that uses it lists it in :attr:`saves`.
        memory: stored images of past tasks (exemplars).
        exemplar_share: the option ``exemplar_share``, or None if no exemplars are added to the batches.
    """

    batches: ClassVar[Literal["episodes", "identities", "stream"]] = "episodes"
    views: ClassVar[int] = 1
    pixels: ClassVar[bool] = False
    saves: ClassVar[Mapping[str, str] | Sequence[str]] = ()
    copies: ClassVar[Mapping[str, str]] = {"teacher": "frozen_network"}
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
        exemplars: Annotated[int, Rule("total number of stored images of past tasks", least=0)] = 0,
        exemplar_mib: Annotated[
            float,
            Rule("maximum size of all stored pixels in MiB, at the network's input size; 0 means no limit", least=0),
        ] = 0.0,
        store: Annotated[
            Literal["images", "paths"],
            Rule(
                "what is stored of exemplars: images (pixels, so that image files may be deleted) or paths (file names)"
            ),
        ] = "images",
        selection: Annotated[
            str,
            Rule(
                "rule that selects images of an identity: herding, nearest, random, or importance if images are scored"
            ),
        ] = "herding",
        fill_memory: Annotated[bool, Rule("let identities with more images fill what equal shares leave free")] = False,
        least_images: Annotated[
            int, Rule("minimum number of images per stored identity; a small memory stores fewer identities", least=1)
        ] = 2,
        exemplar_share: Annotated[
            float, Rule("share of exemplars in a batch; 0 draws them as often as images of the task", least=0, below=1)
        ] = 0.0,
    ) -> None:
        require(selection in self.selections, "selection", selection, f"one of {', '.join(self.selections)}")
        self.model = model
        self.network: nn.Module = model
        self.teacher: nn.Module | None = None
        self.weights: dict[str, float] = {}
        self.augment: Callable[..., Tensor] | None = None
        self.store, self.selection = store, selection
        budget = budget_of(exemplars, exemplar_mib, height=model.height, width=model.width)
        # The seed of the run itself, because drawing a new seed would change all later random numbers.
        self.seed = torch.initial_seed()
        # A separate generator, so that a method's own choices do not change the other random numbers of the run.
        self.generator = torch.Generator().manual_seed(self.seed)
        self.memory: ExemplarStore = ExemplarMemory(
            budget, least=least_images, selection=selection, fill=fill_memory, seed=self.seed
        )
        self.exemplar_share: float | None = exemplar_share if budget else None

    @property
    def exemplars(self) -> int:
        """Number of images in the memory."""
        return len(self.memory)

    @property
    def needs_past(self) -> bool:
        """Whether a trained network is not enough to continue: the method also needs its state after the last task."""
        return set(self.state_dict()) != {"teacher", "memory"} or self.memory.budget > 0

    def begin_task(self, task: Task) -> None:
        """Prepare a task before its first batch. A run that resumes within a task does not call this method again."""

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """The parameters to train; the trainer reads them at the start of each task.

        A parameter group may have a ``rate_factor``, by which the trainer multiplies the learning rate of the group.
        """
        return self.network.parameters()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the named loss terms of a batch (scalars, not yet weighted); the model is in training mode.

        The trainer calls this method ``STREAM.ITERATIONS`` times per batch, once per update. With ``TRAIN.ACCUMULATE``,
        the trainer calls this method for several batches and then :meth:`end_step` for each batch.
        """
        raise NotImplementedError

    @property
    def smallest_batch(self) -> int:
        """Minimum number of images in a batch: 2 if BatchNorm needs two images (:attr:`needs_pairs`), else 1."""
        return 2 if self.needs_pairs else 1

    @cached_property
    def needs_pairs(self) -> bool:
        """Whether training on a single image fails, because BatchNorm would normalise one value per channel."""
        parts = [each for each in vars(self).values() if isinstance(each, nn.Module)]
        if any(isinstance(each, nn.BatchNorm1d) for part in parts for each in part.modules()):
            return True
        image = self.model.mean.new_zeros(1, 3, self.model.height, self.model.width)
        devices = [image.device] if image.is_cuda else []
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                copy.deepcopy(self.model).train()(image)
        except ValueError:  # raised by torch's BatchNorm
            return True
        return False

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """Compute the loss to minimise (scalar): the weighted sum of the terms of :meth:`loss`."""
        first, *others = [self.weights.get(name, 1.0) * term for name, term in terms.items()]
        return sum(others, start=first)

    def augmented(self, pixels: np.ndarray, *, seed: int) -> Tensor:
        """Turn pixels (n, H, W, 3) uint8 into augmented training images (n, 3, H, W) on the model's device.

        Outside a training run, :attr:`augment` is None and this method only normalises the images.
        """
        if self.augment is None:
            return self.model.normalise(torch.from_numpy(pixels))
        return self.augment(pixels, seed=seed)

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Compute scores (n, C), such as logits, for all classes so far; None if the method has no classifier.

        Args:
            features: (n, dim) features that :meth:`lreid.models.Embedder.extract` returned, on the model's device.
        """
        return None

    def mean_directions(self, task: Task) -> Tensor:
        """Compute the direction of each class's mean feature: unit vectors (N, dim) on the CPU, by ascending label.

        As in LSTKC's official code, the directions can initialise the classifier rows of new classes, so that the
        classifier does not disturb a trained network. The direction of a class without readable images is zero.
        """
        means, classes = class_means(self.features_of(task), torch.tensor([record.pid for record in task.records]))
        rows = means.new_zeros(len(task.classes), means.shape[1])
        rows[torch.searchsorted(torch.tensor(sorted(task.classes)), classes)] = F.normalize(means, dim=1)
        return rows

    def features_of(self, task: Task) -> Tensor:
        """Extract the features (n, dim) float32 of a task's images, without augmentation, as a tensor on the CPU."""
        return torch.from_numpy(self.model.extract([record.path for record in task.records]))

    def figures(self) -> dict[str, float]:
        """Return named values that the method adds to ``results.json`` after a task."""
        return {}

    def stored(self, identities: int) -> dict[str, int]:
        """Count the bytes that the method stores between tasks, without the network and the exemplars.

        Args:
            identities: number of identities trained so far.

        Returns:
            Number of bytes by kind. ``networks`` counts previous networks and modules that only training uses;
            ``domain`` counts bytes per domain, and ``identity`` bytes per identity, including templates. The entry
            ``templates`` is 1 if the method stores features of people, and 0 otherwise. For a network with an adapter,
            the entry ``adapter`` is the size of the adapter in bytes; a task changes only the adapter.
        """
        state = self.state_dict()
        by_kind = {"network": [each for name in self.copies for each in _tensors(state[name])]}
        for _, name, kind in self._saved:
            by_kind.setdefault(kind, []).extend(_tensors(state[name]))
        total = {kind: sum(each.nbytes for each in tensors) for kind, tensors in by_kind.items()}
        # A template has one row per identity; some methods store templates of the last task only.
        templates = sum(each.nbytes // max(len(each), 1) for each in by_kind.get("template", ()))
        return {
            "networks": total.get("network", 0),
            "domain": total.get("domain", 0),
            "identity": total.get("identity", 0) // max(identities, 1) + templates,
            "templates": int(templates > 0),
        } | ({"adapter": sum(each.nbytes for each in adapter)} if (adapter := self.model.adapter_parameters()) else {})

    def end_step(self, batch: Batch) -> None:
        """Clean up after a batch; the trainer calls this method after the last update with the batch."""

    def finish_task(self, task: Task) -> None:
        """Change the model between the last update of a task and its evaluation; for example, average weights."""

    def end_task(self, task: Task) -> None:
        """Store the teacher and exemplars after the evaluation of a task, while its images can still be read."""
        self.model.merge_adapter()
        if self.keeps_teacher:
            self.teacher = self.frozen_network()
        stored = set(self.memory.labels.tolist())  # if an identity occurs again, its stored images are kept
        task = replace(task, records=tuple(each for each in task.records if each.pid not in stored))
        if isinstance(self.memory, ExemplarMemory) and self.memory.budget and task.records:
            size: dict[str, Any] = {"height": self.model.height, "width": self.model.width}
            images: Sequence[np.ndarray] = (
                ImagePaths([record.path for record in task.records], **size)
                if self.store == "paths"
                else Images(task.records, **size, cache_gib=0)
            )
            labels = np.array([record.pid for record in task.records], np.int64)
            self.memory.add(images, labels, **self.exemplar_values(task))

    def frozen_network(self) -> Any:
        """Return a frozen copy of the current network, the teacher of the next task."""
        return frozen_copy(self.network).train(self.teacher_in_training)

    def exemplar_values(self, task: Task) -> dict[str, np.ndarray]:
        """Compute the features by which :meth:`lreid.memory.ExemplarMemory.add` selects images."""
        if self.selection == "random":  # this selection does not need features
            return {"values": np.empty((len(task.records), 0), np.float32)}
        return {"values": self.model.extract([record.path for record in task.records])}  # (n, dim)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs in addition to the model: tensors and plain values."""
        own = {name: _packed(getattr(part, name)) for part, name, _ in self._saved}
        copies = {name: _packed(getattr(self, name)) for name in self.copies}
        return copies | {"memory": self.memory.state_dict()} | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        for name, function in self.copies.items():
            setattr(self, name, None)
            if (self.keeps_teacher or name != "teacher") and state[name] is not None:
                setattr(self, name, getattr(self, function)())
                getattr(self, name).load_state_dict(state[name])
        self.memory.load_state_dict(state["memory"])
        for part, name, _ in self._saved:
            value, saved = getattr(part, name), state[name]
            if isinstance(value, torch.Generator):
                value.set_state(saved.cpu())
            elif hasattr(value, "load_state_dict"):
                value.load_state_dict(saved)
            else:
                device = value.device if isinstance(value, Tensor) else self.model.mean.device
                setattr(part, name, type(value)(saved) if isinstance(value, (tuple, set)) else _moved(saved, device))

    @property
    def _saved(self) -> list[tuple[Any, str, str]]:
        """All attributes that :attr:`saves` lists in this class and its base classes: object, name and kind of each."""
        kinds: dict[str, str] = {}
        for cls in reversed(type(self).__mro__):
            own = vars(cls).get("saves", ())
            kinds |= own if isinstance(own, Mapping) else dict.fromkeys(own, "")
        paths = [(*name.rpartition("."), kind) for name, kind in kinds.items()]
        return [(attrgetter(owner)(self) if owner else self, name, kind) for owner, _, name, kind in paths]


def _packed(value: Any) -> Any:
    """Convert an attribute to tensors and plain values for a checkpoint."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, (tuple, set)):
        return list(value) if isinstance(value, tuple) else sorted(value)
    return value.state_dict() if hasattr(value, "state_dict") else value


def _moved(saved: Any, device: torch.device) -> Any:
    """Move the tensors of a saved value to a device."""
    if isinstance(saved, dict):
        return {name: _moved(each, device) for name, each in saved.items()}
    return saved.to(device) if isinstance(saved, Tensor) else saved


def _tensors(state: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested containers, except scalars such as ``num_batches_tracked`` of BatchNorm layers."""
    if isinstance(state, Tensor):
        if state.ndim:
            yield state
    elif isinstance(state, (dict, list, tuple)):
        for each in state.values() if isinstance(state, dict) else state:
            yield from _tensors(each)
