"""How features of old images fare while new ones are learned: drift, alignment with held-out images, gradients.

Source of all: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE, ER-AML), 2021. It
compares features of unit length, ``f / |f|``, as retrieval by cosine similarity does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.errors import InputError
from lreid.models import Embedder
from lreid.retrieval.arrays import as_comparable, as_labels, unit_rows

DriftMetric = Literal["euclidean", "cosine"]


def feature_drift(
    before: np.ndarray | Tensor, after: np.ndarray | Tensor, metric: DriftMetric = "euclidean"
) -> float:
    """How far features have moved on the unit sphere, mean over images.

    Source: Section 3.3, ``|f(x; before) - f(x; after)|`` over one update, Fig. 2 right and Table 3: ``euclidean``;
    Fig. 2 left plots the cosine distance, ``1 - cos``, which is half its square.

    Args:
        before, after: (n, D) float features of the same images by the two models, of any length.
        metric: ``euclidean``, in [0, 2], or ``cosine``, in [0, 2].

    Returns:
        The mean over the n images, computed in float64. A feature of length 0 stays there and is compared as it is.

    Raises:
        InputError: the shapes differ or are not (n, D), a value is not finite, or the metric is unknown.
    """
    if metric not in ("euclidean", "cosine"):
        raise InputError(f"metric {metric!r}: unknown; use euclidean or cosine")
    before, after = as_comparable(before, after)
    if len(before) != len(after):
        raise InputError(
            f"drift of {len(before)} features to {len(after)}; give the same images before and after"
        )
    difference = unit_rows(after.double(), "features after") - unit_rows(before.double(), "features before")
    squares = difference.square().sum(1)  # (n,)
    return (squares.sqrt() if metric == "euclidean" else squares / 2).mean().item()


class DriftRecorder:
    """Follows the features of chosen images through the first updates after a task switch, as Fig. 2 does.

    Made when the last update of the old task is done, and told after every one of the new task. Features are those that
    retrieval compares: in evaluation mode, through the neck where there is one. So BatchNorm's running statistics are
    part of what drifts; the paper does not say in which mode it measures.

    The modes of the model and of its parts come back as they were and nothing random is drawn, so training goes on
    as if nobody had looked. A recorder looks and never steers: it has no place in a checkpoint, and a run that is
    taken up again in the middle of a task only lacks the curves of that switch.

    Args:
        model: the network that is trained.
        images: sets of images by name, for instance ``buffer`` and ``held_out``; each (n, H, W, 3) uint8, or
            :class:`~lreid.data.images.Images`, decoded once where they are cached. Every step looks at all of them, so
            take a few hundred. Sets without images are left out.
        steps: updates that are measured; later ones cost nothing.
        metric: of :func:`feature_drift`.

    Attributes:
        curves: for each set ``step``, the drift in each update, and ``since_switch``, the drift from the features
            before the switch to those after each update; lists of one number an update.

    Raises:
        InputError: a feature is not finite, or the metric is unknown.
    """

    def __init__(
        self, model: Embedder, images: Mapping[str, np.ndarray | Images], *, steps: int,
        metric: DriftMetric = "euclidean",
    ) -> None:  # fmt: skip
        self.model, self.steps, self.metric = model, steps, metric
        self.images = {name: each for name, each in images.items() if len(each)}
        self.curves: dict[str, dict[str, list[float]]] = {
            name: {"step": [], "since_switch": []} for name in self.images
        }
        self.done = 0
        self.first = self.last = self._features()

    def after_step(self) -> None:
        """Measures the drift in the update that has just been made, if it is one of the first ``steps``."""
        if self.done >= self.steps:
            return
        self.done += 1
        features = self._features()
        for name, curves in self.curves.items():
            curves["step"].append(feature_drift(self.last[name], features[name], self.metric))
            curves["since_switch"].append(feature_drift(self.first[name], features[name], self.metric))
        self.last = features

    def _features(self) -> dict[str, np.ndarray]:
        modes = [(module, module.training) for module in self.model.modules()]
        features = {name: self.model.extract(images) for name, images in self.images.items()}  # (n, dim) each
        for module, training in modes:  # extract puts all parts in the mode of the whole
            module.training = training
        return features


class GradientRecorder:
    """Follows how hard the loss pulls at features of stored and of incoming images after a task switch, as Fig. 8 does.

    A method may call its network several times a step. Of a call that begins with the batch, the rows of the batch that
    are exemplars are stored images, and all behind the batch; any other call is on stored ones. Methods without memory
    look at incoming images only. Calls without gradient, such as those of a teacher, do not count.

    Args:
        model: the network that is trained.
        steps: updates that are measured; later ones cost nothing.

    Attributes:
        norms: ``stored`` and ``incoming``, one mean of :func:`feature_gradient_norm` an update; None where there
            was no such image.
    """

    def __init__(self, model: Embedder, *, steps: int) -> None:
        self.model, self.steps = model, steps
        self.norms: dict[str, list[float | None]] = {"stored": [], "incoming": []}

    def loss(self, method: Any, batch: Batch) -> dict[str, Tensor]:
        """What ``method.loss(batch)`` gives; puts down the norms of the weighted sum."""
        if len(self.norms["stored"]) >= self.steps:
            return method.loss(batch)
        calls: list[tuple[Tensor, Tensor]] = []  # images and features

        def listen(_: nn.Module, inputs: tuple[Tensor, ...], features: Tensor) -> None:
            if features.requires_grad:
                calls.append((inputs[0], features))

        hook = self.model.register_forward_hook(listen)
        try:
            terms = method.loss(batch)
        finally:
            hook.remove()
        total = method.total(terms)
        found: dict[str, list[Tensor]] = {"stored": [], "incoming": []}
        for images, features in calls:
            norms = gradient_norms(total, features)  # (n,)
            stored = _are_stored(images, batch) & bool(method.memory)  # (n,)
            found["stored"].append(norms[stored])
            found["incoming"].append(norms[~stored])
        for name, parts in found.items():
            norms = torch.cat(parts) if parts else torch.empty(0)
            self.norms[name].append(norms.mean().item() if len(norms) else None)
        return terms


def _are_stored(images: Tensor, batch: Batch) -> Tensor:
    """Which of the images (n, 3, H, W) of a call did not come in with the batch: (n,) bool, on the CPU."""
    count, stored = len(batch.images), torch.ones(len(images), dtype=torch.bool)
    if len(images) >= count and torch.equal(images[:count], batch.images):
        stored[:count] = False if batch.exemplars is None else batch.exemplars >= 0
    return stored


def buffer_alignment(
    buffer_features: np.ndarray | Tensor, buffer_labels: np.ndarray | Tensor,
    held_out_features: np.ndarray | Tensor, held_out_labels: np.ndarray | Tensor,
    class_tasks: np.ndarray | Tensor,
) -> dict[int, float]:  # fmt: skip
    """How near images that were never trained come to the stored ones of their class: low where a model overfits these.

    Source: Appendix B, Fig. 7: of each stored image, the highest cosine similarity to a held-out image of its class;
    mean over the stored images of a task.

    Args:
        buffer_features: (m, D) float, of any length; a feature of length 0 has the similarity 0 to all.
        buffer_labels: (m,) integers, class labels in [0, C).
        held_out_features: (n, D) float, of images held out from training.
        held_out_labels: (n,) integers; classes that are not in the buffer do not count.
        class_tasks: (C,) integers, the task of each class.

    Returns:
        ``{task: similarity}`` in [-1, 1], for the tasks with images in the buffer, ascending.

    Raises:
        InputError: shapes that do not fit, a value that is not finite, a class without held-out image or without task.
    """
    buffer, held_out = as_comparable(buffer_features, held_out_features)
    buffer, held_out = unit_rows(buffer, "buffer features"), unit_rows(held_out, "held-out features")
    labels = as_labels(buffer_labels, "buffer labels", len(buffer))
    held_out_labels = as_labels(held_out_labels, "held-out labels", len(held_out))
    class_tasks = as_labels(class_tasks, "tasks of the classes", len(class_tasks))
    if labels.min() < 0 or labels.max() >= len(class_tasks):
        raise InputError(f"buffer labels must be in [0, {len(class_tasks)}), the classes that have a task")
    missing = np.setdiff1d(labels, held_out_labels)
    if len(missing):
        raise InputError(
            f"classes {missing.tolist()} have no held-out image; leave them out or hold some out"
        )
    nearest = np.empty(len(labels))  # (m,)
    for label in np.unique(labels):
        rows = labels == label
        similarity = buffer[rows] @ held_out[held_out_labels == label].T  # (m of the class, n of the class)
        nearest[rows] = similarity.max(1).values.cpu().numpy()
    tasks = class_tasks[labels]  # (m,)
    return {int(task): float(nearest[tasks == task].mean()) for task in np.unique(tasks)}


def feature_gradient_norm(loss: Tensor, features: Tensor, rows: Tensor | None = None) -> float:
    """How hard a loss pulls at features, ``|d loss / d f(x)|``, mean over images.

    Source: Appendix C, Fig. 8, which plots it for the images of the first task while the second is learned. The paper
    does not say how the loss is reduced or whether ``f`` is scaled to unit length: what is handed in decides. Of the
    loss on incoming images it is 0 for old ones that are not among its negatives.

    Args:
        loss: scalar. Its graph is kept, and no ``.grad`` changes, so that ``loss.backward()`` may follow.
        features: (B, D) float, the very tensor that the loss was computed from.
        rows: (B,) bool, or indices, of the old images; None takes all.

    Returns:
        Mean Euclidean norm of the rows' gradients; 0 where the loss does not depend on them.

    Raises:
        InputError: the features carry no gradient, or there are no such rows.
    """
    norms = gradient_norms(loss, features)
    if rows is not None:
        norms = norms[rows]
    if len(norms) == 0:
        raise InputError("gradient norm of no feature; name rows of old images, or measure later")
    return norms.mean().item()


def gradient_norms(loss: Tensor, features: Tensor) -> Tensor:
    """``|d loss / d f(x)|`` of each feature: (B,) float64, on the CPU. Arguments and errors as above."""
    if not features.requires_grad:
        raise InputError("features carry no gradient; compute them and the loss outside torch.no_grad")
    if not loss.requires_grad:
        return torch.zeros(len(features), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(loss, features, retain_graph=True, materialize_grads=True)
    return gradient.double().norm(dim=1).cpu()
