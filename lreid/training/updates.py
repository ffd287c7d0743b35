"""Updates of the network: loss, gradient, optimiser and learning rate."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer

from lreid.config_keys import OPTIMIZERS, TrainSection
from lreid.data.loaders import Batch
from lreid.errors import InputError, counted
from lreid.evaluation.observer import Observer
from lreid.methods import Method
from lreid.models.parts import layers_of
from lreid.training import distributed
from lreid.utils.extras import Item, registrar

CHECK_EVERY = 20  # updates between checks of the loss on a GPU, because each check waits for the GPU
OWN: dict[str, Callable[..., Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD}
OPTIMIZERS.update(OWN)


def register_optimizer(name: str) -> Callable[[Item], Item]:
    """Register an optimiser from outside lreid as a value of ``TRAIN.OPTIMIZER`` in this process.

    Returns:
        A decorator for a class with the arguments of torch's optimisers, or for a function that returns an optimiser.
        The arguments are parameter groups, ``lr`` and ``weight_decay``; the trainer sets the rate of every epoch.

    Raises:
        ArgumentError: lreid or a plug-in already has an optimiser of this name.
    """
    return registrar(OPTIMIZERS, name, "an optimiser")


class NotFinite(InputError):
    """Error for an infinite or NaN loss or parameter; ``paths`` contains the image paths of the batch."""

    def __init__(self, message: str, paths: Sequence[str]) -> None:
        super().__init__(message)
        self.paths = paths


class Updates:
    """Update the parameters of a method by the gradient of its loss; every task has its own ``Updates`` object.

    Args:
        method: the method to train, on its device.
        train: the section ``TRAIN`` of a config. With ``TRAIN.PRECISION fp16``, the loss is scaled so that small
            gradients do not become 0 in half precision.
    """

    def __init__(self, method: Method, train: TrainSection) -> None:
        self.method, self.train, self.device = method, train, method.model.mean.device
        device, fp16, sgd = self.device, train.PRECISION == "fp16", train.OPTIMIZER == "sgd"
        # A fused optimiser itself skips a step with infinite gradients; otherwise the CPU has to wait for the GPU.
        scaled_sgd = fp16 and sgd
        fused = device.type == "cuda" or (device.type == "cpu" and not scaled_sgd)
        options: dict[str, Any] = {"lr": train.LR, "weight_decay": train.WEIGHT_DECAY}
        if train.OPTIMIZER in OWN:
            options |= {"lr": 0.0, "fused": fused} | ({"momentum": train.MOMENTUM} if sgd else {})
        trained = parameter_groups(method, layer_decay=train.LAYER_DECAY, bias_rate=train.BIAS_RATE)
        self.optimizer: Optimizer = OPTIMIZERS[train.OPTIMIZER](trained, **options)
        if fused and scaled_sgd and train.MOMENTUM:  # the first step creates momenta, but GradScaler may skip it
            for group in self.optimizer.param_groups:
                for each in group["params"]:
                    self.optimizer.state[each]["momentum_buffer"] = torch.zeros_like(each)
        self.scaler = torch.amp.GradScaler(device.type, enabled=fp16)
        self.rate, self.is_first = 0.0, True
        weights = method.network.state_dict() if train.EMA else {}
        self.average = {name: each.clone() for name, each in weights.items() if each.is_floating_point()}
        # Losses, their terms and the paths of their images.
        self.unchecked: list[tuple[Tensor, dict[str, Tensor], Sequence[str]]] = []

    def set_rates(self, rate: Callable[..., float]) -> None:
        """Set the learning rates of the next updates.

        Args:
            rate: function that returns the learning rate of a parameter group; its argument ``first`` is the task in
                which the group joins the schedule.
        """
        self.rate = rate(first=0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(first=group.get("first_task", 0)) * group.get("rate_factor", 1.0)

    def update(self, batches: Sequence[Batch], observers: Sequence[Observer] = ()) -> None:
        """Update the parameters by the mean gradient of one or more batches, which are processed one by one."""
        self.optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            for each in observers:
                each.before_loss(batch)
            terms = self.method.loss(batch)
            self._require_scalars(terms, batch)
            loss = self.method.total(terms)
            for each in observers:
                each.after_loss(batch, terms, loss, len(batches))
            self.scaler.scale(loss / len(batches)).backward()
            self.unchecked.append((loss.detach(), {name: term.detach() for name, term in terms.items()}, batch.paths))
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        distributed.average_gradients(parameters)
        if self.train.CLIP_NORM:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(parameters, self.train.CLIP_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._update_average()
        self.is_first = False
        for each in observers:
            each.after_step()
        if self.device.type == "cpu" or len(self.unchecked) >= CHECK_EVERY:
            self.check()

    def _require_scalars(self, terms: Mapping[str, Any], batch: Batch) -> None:
        """Require that every loss term is a scalar; in the first update, also that it has a gradient or adds 0."""
        for name, term in terms.items():
            is_scalar = isinstance(term, Tensor) and term.numel() == 1
            if not is_scalar or (self.is_first and not term.requires_grad and self.method.total({name: term}) != 0):
                images = f"{counted(len(batch.labels), 'image')}{''.join(f' ({path} …)' for path in batch.paths[:1])}"
                fault = "is detached" if is_scalar else f"is {getattr(term, 'shape', term)}, not a scalar tensor"
                raise InputError(f"{type(self.method).__name__}.loss: term {name} of {images} {fault}; correct it")

    @torch.no_grad()
    def _update_average(self) -> None:
        network = self.method.network.state_dict() if self.average else {}
        for name, mean in self.average.items():
            mean.lerp_(network[name], 1 - self.train.EMA)

    def finish(self) -> None:
        """After the last update of a task, replace the network's weights by their moving average, if there is one."""
        if self.average:
            self.method.network.load_state_dict(self.average, strict=False)  # without BatchNorm's numbers of batches

    def check(self) -> None:
        """Check that all losses since the previous check are finite."""
        if self.unchecked:
            finite = torch.stack([loss for loss, *_ in self.unchecked]).isfinite().tolist()
            if not all(finite):
                loss, terms, paths = self.unchecked[finite.index(False)]
                names = ", ".join(f"{name} {term.item()}" for name, term in terms.items())
                raise NotFinite(f"the loss is {loss.item()}, of the terms {names}", paths)
        self.unchecked.clear()

    def check_parameters(self) -> None:
        """Check all parameters before a checkpoint is saved; a gradient can be infinite even if the loss is finite."""
        self.check()
        own = {id(each) for each in self.method.model.parameters()}
        trained = [each for group in self.optimizer.param_groups for each in group["params"]]
        heads = {f"parameter {index}": each for index, each in enumerate(trained) if id(each) not in own}
        tensors = self.method.model.state_dict() | heads
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not math.isfinite(tensor.sum().item()):
                raise NotFinite(f"{name} of the network is not finite", ())

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs: tensors and plain values."""
        states = {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
        return states | {"average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.optimizer.load_state_dict(state["optimizer"])
        # torch does not compare shapes, and a fused step with moments of another shape ends the process.
        for parameter, moments in self.optimizer.state.items() if self.train.OPTIMIZER in OWN else ():
            if any(each.shape not in ((), parameter.shape) for each in moments.values()):
                raise ValueError("moments whose shape differs from that of their parameter")
        self.scaler.load_state_dict(state["scaler"])
        for name, mean in self.average.items():
            mean.copy_(state["average"][name])


def parameter_groups(method: Method, *, layer_decay: float, bias_rate: float) -> list[dict[str, Any]]:
    """Group the trained parameters of a method by the factor of their learning rate (``rate_factor``).

    If one schedule covers all tasks, a parameter group joins it in the task ``first_task``.

    Args:
        layer_decay: learning rate of a layer of the backbone divided by that of the next layer, as in BEiT (ICLR 2022;
            :func:`~lreid.models.parts.layers_of`). The layer after the last one is the rest of the network.
        bias_rate: factor of the learning rate of biases in the network (2 in CLIP-ReID, AAAI 2023).
    """
    given: list[Any] = list(method.parameters())
    groups: list[dict[str, Any]] = given if given and isinstance(given[0], dict) else [{"params": given}]
    if layer_decay == bias_rate == 1:
        return groups
    layers = layers_of(method.model.backbone)
    factors = {id(each): layer_decay ** (len(layers) - depth) for depth, layer in enumerate(layers) for each in layer}
    biases = {id(each) for name, each in method.model.named_parameters() if name.endswith("bias")}
    split = []
    for group in groups:
        parts: dict[float, list[Parameter]] = {}
        for each in group["params"]:
            factor = factors.get(id(each), 1.0) * (bias_rate if id(each) in biases else 1.0)
            parts.setdefault(factor * group.get("rate_factor", 1.0), []).append(each)
        split += [{**group, "params": members, "rate_factor": factor} for factor, members in parts.items()]
    return split


class Schedule:
    """The learning rate of every epoch, ``TRAIN.LR`` times :meth:`factor`.

    Let e be the number of the epoch, counted from 1, and S be ``TRAIN.DECAY_START * epochs``; let ``end`` be
    ``TRAIN.END_FACTOR``. Before epoch S, the factor is 1. ``TRAIN.SCHEDULE`` has one of these values:

    * ``exponential``: the factor is ``end ** ((e + 1 - S) / (epochs + 1 - S))``, as in DwoPP's official code. The
      factor reaches ``end`` in the last epoch. The decay that DwoPP's paper prints is slightly slower.
    * ``cosine``: the factor falls from 1 in epoch S to ``end`` in the last epoch, as in the official code of Co2L and
      CCLIS (with S = 0).
    * ``steps``: the factor is multiplied by ``TRAIN.STEP_FACTOR`` at each epoch in ``TRAIN.MILESTONES``, as in BoT's
      official code. With ``TRAIN.FIRST_MILESTONES``, the first task has its own milestones, as in PAD's official code.
      Milestones and warm-up count epochs from ``TRAIN.FIRST_EPOCH_NUMBER``. BoT's official code counts from 1 (its
      warm-up over 10 epochs begins with the factor 0.109), LSTKC's from 0 and AKA's from -1.

    In the first ``TRAIN.WARMUP_EPOCHS`` epochs, the factor is multiplied by BoT's linear warm-up, which rises from
    ``TRAIN.WARMUP_FACTOR`` to 1.

    Args:
        train: the section ``TRAIN`` of a config.
    """

    def __init__(self, train: TrainSection) -> None:
        self.train = train

    def rate(self, task: int, epoch: int, epochs: Sequence[int], *, first: int = 0) -> float:
        """Compute the learning rate of an epoch; ``epochs`` are the numbers of epochs of all tasks. Counts start at 0.

        If one schedule covers all tasks (``TRAIN.RESTARTS False``), it begins with the task ``first``.
        """
        if self.train.RESTARTS:
            return self.train.LR * self.factor(epoch, epochs[task], task=task)
        return self.train.LR * self.factor(sum(epochs[first:task]) + epoch, sum(epochs[first:]))

    def factor(self, epoch: int, epochs: int, *, task: int = 1) -> float:
        """Compute the factor by which ``TRAIN.LR`` is multiplied in an epoch; epochs and tasks count from 0."""
        train, end = self.train, self.train.END_FACTOR
        if train.SCHEDULE == "steps":
            number = max(epoch + train.FIRST_EPOCH_NUMBER, 0)
            milestones = (train.FIRST_MILESTONES if task == 0 else []) or train.MILESTONES
            return self._rise(number) * train.STEP_FACTOR ** sum(milestone <= number for milestone in milestones)
        start = train.DECAY_START * epochs
        if epoch + 1 < start or train.DECAY_START == 1:
            return self._rise(epoch)
        if train.SCHEDULE == "cosine":
            done = (epoch + 1 - start) / (epochs - start)
            return self._rise(epoch) * (end + (1 - end) * (1 + math.cos(math.pi * done)) / 2)
        return self._rise(epoch) * end ** ((epoch + 2 - start) / (epochs + 1 - start))

    def _rise(self, number: int) -> float:
        """Compute the warm-up factor of the epoch ``number``."""
        warmup, start = self.train.WARMUP_EPOCHS, self.train.WARMUP_FACTOR
        return 1.0 if number >= warmup else start + (1 - start) * number / warmup
