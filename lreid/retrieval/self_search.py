"""Images searched among themselves: how well a network tells a few identities apart that are at hand."""

from __future__ import annotations

import numpy as np

from lreid.retrieval.ranking import evaluate
from lreid.retrieval.scores import Metric


def self_retrieval(
    features: np.ndarray, labels: np.ndarray, cameras: np.ndarray, *, metric: Metric = "cosine"
) -> float:
    """mAP of every image against all others, those of the same identity and camera left out.

    Where no identity was seen by two cameras, every image counts as one of a camera of its own.

    Args:
        features: ``(n, D)`` float.
        labels: ``(n,)`` integers, identities.
        cameras: ``(n,)`` integers.
        metric: of :func:`~lreid.retrieval.evaluate`.

    Returns:
        In [0, 1]; 0 where no identity has two images.
    """
    identities = len(np.unique(labels))
    if identities == len(labels):
        return 0.0
    places = len(np.unique(np.stack([labels, cameras]), axis=1).T)
    if places == identities:  # no identity was seen by two cameras
        cameras = np.arange(len(labels))
    return evaluate(features, features, labels, labels, cameras, cameras, metric=metric).mAP
