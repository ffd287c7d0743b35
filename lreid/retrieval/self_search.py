"""Retrieval among the images of a sample, which shows how well a network distinguishes its identities."""

from __future__ import annotations

import numpy as np

from lreid.identities import JUNK, UNKNOWN, as_labels
from lreid.retrieval.ranking import evaluate
from lreid.retrieval.scores import Metric


def self_retrieval(
    features: np.ndarray, labels: np.ndarray, cameras: np.ndarray, *, metric: Metric = "cosine"
) -> float:
    """mAP of every image as a query among all others, without images of the same identity and camera.

    If no identity was seen by two cameras, every image counts as one from a separate camera; so does an image whose
    camera is unknown.

    Args:
        features: ``(n, D)`` float.
        labels: ``(n,)`` integers, identities; images whose identity is missing or junk (-1) are left out.
        cameras: ``(n,)`` integers; missing and -1 are not known.
        metric: as in :func:`~lreid.retrieval.evaluate`.

    Returns:
        In [0, 1]; 0 where no identity has two images.
    """
    labels, cameras = (as_labels(*each, len(features)) for each in ((labels, "labels"), (cameras, "cameras")))
    labelled = labels != JUNK
    features, labels, cameras = features[labelled], labels[labelled], cameras[labelled]
    identities = len(np.unique(labels))
    if identities == len(labels):
        return 0.0
    separate = np.arange(len(labels)) + cameras.max() + 1  # its own camera for every image
    cameras = np.where(cameras == UNKNOWN, separate, cameras)
    places = len(np.unique(np.stack([labels, cameras]), axis=1).T)
    if places == identities:  # no identity was seen by two cameras
        cameras = separate
    return evaluate(features, features, labels, labels, cameras, cameras, metric=metric).mAP
