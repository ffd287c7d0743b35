"""Measure the norm of the loss gradient with respect to the features of stored and new images in training.

Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE, ER-AML), 2021.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lreid.data.loaders import Batch
from lreid.errors import InputError
from lreid.evaluation.observer import Learner


class GradientRecorder:
    """Record the norms of the loss gradient with respect to features after a switch to a new task (Fig. 8).

    The recorded features are those of stored and of incoming images: the outputs of the network or, if a method pools
    the network's maps itself, the results of this pooling. Gradients that reach the maps in other ways are ignored. A
    method may call its network several times per step. If the first rows of a call are the batch, stored images are the
    exemplars in the batch and all rows after the batch. If a call does not begin with the batch, all its rows are
    stored images. For methods without a memory, all images are incoming images. Calls without a gradient are ignored.

    Args:
        steps: number of updates to measure; later updates are not measured.

    Attributes:
        norms: two lists, ``stored`` and ``incoming``, with one value per update. A value is the mean of
            :func:`gradient_norms` over images; the norm of an image is computed for the loss of its own batch. A value
            is None if the update has no stored (or no incoming) images, or if the mean is not finite.
    """

    def __init__(self, method: Learner, *, steps: int) -> None:
        self.method, self.steps = method, steps
        self.norms: dict[str, list[float | None]] = {"stored": [], "incoming": []}
        # Norms (n,) of each call in the current update.
        self.image_norms: dict[str, list[Tensor]] = {"stored": [], "incoming": []}
        self.images: list[Tensor] = []  # inputs of calls that have not returned yet
        self.calls: list[tuple[Tensor, Tensor]] = []  # images and features
        self.hooks: list[RemovableHandle] = []
        self.mapped: list[tuple[Tensor, Tensor]] = []  # images and maps of calls of maps()
        self.plain: dict[str, Any] = {}  # attributes of the model that are replaced meanwhile

    def before_loss(self) -> None:
        """Register hooks in the network."""
        if len(self.norms["stored"]) < self.steps:
            model = self.method.model
            # This hook comes first, because with several processes a later hook selects a part of the images.
            input_hook = model.register_forward_pre_hook(lambda _, inputs: self.images.append(inputs[0]), prepend=True)
            self.hooks = [input_hook, model.register_forward_hook(self._listen)]
            own: Any = model
            self.plain = {name: own.__dict__[name] for name in ("maps", "pool") if name in own.__dict__}
            own.maps, own.pool = partial(self._maps, own.maps), partial(self._pool, own.pool)

    def after_loss(self, batch: Batch, loss: Tensor) -> None:
        """Compute the norms for the weighted loss (scalar) of a batch, and remove the hooks."""
        for hook in self.hooks:
            hook.remove()
        if self.hooks:
            own: Any = self.method.model
            del own.maps, own.pool
            own.__dict__.update(self.plain)
        for images, features in self.calls:
            norms = gradient_norms(loss, features)  # (n,)
            stored = _are_stored(images, batch) & bool(self.method.memory)  # (n,)
            self.image_norms["stored"].append(norms[stored])
            self.image_norms["incoming"].append(norms[~stored])
        self.hooks, self.calls, self.mapped = [], [], []

    def after_step(self) -> None:
        """Record the mean norms of the last update, unless more than ``steps`` updates have been made."""
        if len(self.norms["stored"]) >= self.steps:
            return
        for name, parts in self.image_norms.items():
            mean = torch.cat(parts).mean().item() if parts else math.nan  # NaN without images
            self.norms[name].append(mean if math.isfinite(mean) else None)
            parts.clear()

    def _maps(self, maps: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        result = maps(images)
        self.mapped.append((images, result))
        return result

    def _pool(self, pool: Callable[[Tensor], Tensor], maps: Tensor) -> Tensor:
        features = pool(maps)
        images = next((images for images, computed in self.mapped if computed is maps), None)
        if images is not None and features.requires_grad:
            self.calls.append((images, features))
        return features

    def _listen(self, _: nn.Module, inputs: tuple[Tensor, ...], features: Tensor) -> None:
        images = self.images.pop()
        if features.requires_grad:
            self.calls.append((images, features))


def _are_stored(images: Tensor, batch: Batch) -> Tensor:
    """Return a mask (n,) bool of the stored images among the images (n, 3, H, W) of a forward pass, on the CPU."""
    count, stored = len(batch.images), torch.ones(len(images), dtype=torch.bool)
    # Each of several processes has only its own part of the images; the other images are NaN.
    if len(images) >= count and torch.allclose(images[:count], batch.images, rtol=0, atol=0, equal_nan=True):
        stored[:count] = False if batch.exemplars is None else batch.exemplars >= 0
    return stored


def gradient_norms(loss: Tensor, features: Tensor) -> Tensor:
    """Compute the norms of the loss gradient with respect to features, ``|d loss / d f(x)|``.

    Source: Fig. 8 in Appendix C of ER-ACE's paper; it shows the mean over images of the first task during training on
    the second task. ER-ACE's paper does not say how the loss is averaged or whether ``f`` is scaled to unit length. In
    lreid, both depend on the arguments. If the loss covers only incoming images, the norm is 0 at stored images that
    are not negatives in the loss.

    Args:
        loss: scalar loss. This function keeps the graph of the loss and changes no ``.grad``, so ``loss.backward()``
            can follow.
        features: (B, D) float features; the same tensor object from which the loss was computed.

    Returns:
        Euclidean norms (B,) float64 on the CPU, 0 where the loss does not depend on a feature.
    """
    if not features.requires_grad:
        raise InputError("features carry no gradient; compute them and the loss outside torch.no_grad")
    if not loss.requires_grad:
        return torch.zeros(len(features), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(loss, features, retain_graph=True, materialize_grads=True)
    return gradient.double().norm(dim=1).cpu()
