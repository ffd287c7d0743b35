"""Measure feature drift: the change of old images' features while the model trains on new images.

Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE, ER-AML), 2021. Features are
compared at unit length, ``f / |f|``, as in retrieval by cosine similarity.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lreid.data.images import Images
from lreid.errors import InputError
from lreid.models.embedder import Embedder
from lreid.retrieval.arrays import as_comparable, unit_rows

DriftMetric = Literal["euclidean", "cosine"]
CURVES: dict[str, tuple[str, DriftMetric]] = {
    "step": ("step", "euclidean"),
    "since_switch": ("since_switch", "euclidean"),
    "step_cosine": ("step", "cosine"),
    "since_switch_cosine": ("since_switch", "cosine"),
}


def feature_drift(before: np.ndarray | Tensor, after: np.ndarray | Tensor, metric: DriftMetric = "euclidean") -> float:
    """Compute the mean distance between the unit-length features of two models for the same images.

    Source: Section 3.3 of ER-ACE's paper. The metric ``euclidean`` is ``|f(x; before) - f(x; after)|``, as in ER-ACE's
    Fig. 2 right and Table 3, which measure a single update. The metric ``cosine`` is ``1 - cos``, half the square of
    the Euclidean distance, as in ER-ACE's Fig. 2 left.

    Args:
        before, after: (n, D) float features of the same images by the two models; they need not be unit vectors.
        metric: ``euclidean`` or ``cosine``; both distances are at most 2.

    Returns:
        Mean distance over the n images, in float64. Features of length 0 stay unscaled.
    """
    if metric not in ("euclidean", "cosine"):
        raise InputError(f"metric {metric!r}: unknown; use euclidean or cosine")
    before, after = as_comparable(before, after)
    if len(before) != len(after):
        raise InputError(f"drift of {len(before)} features to {len(after)}; give the same images before and after")
    difference = unit_rows(after.double(), "features after") - unit_rows(before.double(), "features before")
    squares = difference.square().sum(1)  # (n,)
    return (squares.sqrt() if metric == "euclidean" else squares / 2).mean().item()


class DriftRecorder:
    """Record feature drift in the first updates after a switch to a new task, as in Fig. 2 of ER-ACE's paper.

    Create a recorder after the last update of the old task, and call :meth:`after_step` after every update of the new
    task. Features are extracted as for retrieval: in evaluation mode, and after the neck if there is one. The drift
    therefore includes changes of BatchNorm's running statistics. ER-ACE's paper does not say whether its features are
    from evaluation mode.

    The recorder restores the training modes of the model and draws no random numbers. Recording drift therefore does
    not change training.

    Args:
        images: sets of images by name, for example ``buffer`` and ``held_out``. Each set is (n, H, W, 3) uint8 or
            :class:`~lreid.data.images.Images`. Features of all images are extracted at every update, so a set should
            have a few hundred images at most. Sets without images are ignored.
        steps: number of updates to measure; later updates are not measured.

    Attributes:
        curves: for each set of images, four lists with one number per update of the network. ``step`` is the
            :func:`feature_drift` of each update, and ``since_switch`` the drift since the start of the new task.
            ``step_cosine`` and ``since_switch_cosine`` are the same by cosine distance, as in Fig. 2 left.
    """

    def __init__(self, model: Embedder, images: Mapping[str, np.ndarray | Images], *, steps: int) -> None:
        self.model, self.steps = model, steps
        self.images = {name: each for name, each in images.items() if len(each)}
        self.curves: dict[str, dict[str, list[float]]] = {name: {curve: [] for curve in CURVES} for name in self.images}
        self.done = 0
        self.first = self.last = self._features()

    def after_step(self) -> None:
        """Measure the drift of the last update, unless more than ``steps`` updates have been made."""
        if self.done >= self.steps:
            return
        self.done += 1
        features = self._features()
        for name, curves in self.curves.items():
            for curve, (since, metric) in CURVES.items():
                before = self.last if since == "step" else self.first
                curves[curve].append(feature_drift(before[name], features[name], metric))
        self.last = features

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, without the images."""
        features = {
            name: {set_name: torch.from_numpy(each) for set_name, each in sets.items()}
            for name, sets in (("first", self.first), ("last", self.last))
        }
        return {"curves": self.curves, "done": self.done, **features}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned; this recorder must have the same images."""
        self.curves, self.done = state["curves"], state["done"]
        self.first, self.last = ({name: each.numpy() for name, each in state[k].items()} for k in ("first", "last"))

    def _features(self) -> dict[str, np.ndarray]:
        return {name: self.model.extract(images) for name, images in self.images.items()}  # (n, dim) each
