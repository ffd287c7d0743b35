"""Retrieval within a sample of images, which measures how well a network distinguishes the identities in it."""

import numpy as np

from lreid.retrieval.ranking import evaluate
from lreid.retrieval.scores import Metric
from lreid.utils.identities import JUNK, UNKNOWN, as_labels


def self_retrieval(
    features: np.ndarray, labels: np.ndarray, cameras: np.ndarray, *, metric: Metric = "cosine"
) -> float:
    """Use each image as a query among all other images of the sample, and return the mAP.

    The camera filter leaves out images with the query's identity and camera.

    If no two cameras saw the same identity, every image is treated as if it came from a different camera. An image of
    unknown camera is also treated as if it came from a different camera.

    Args:
        features: ``(n, D)`` float.
        labels: ``(n,)`` integer identities; images whose identity is missing or junk (-1) are left out.
        cameras: ``(n,)`` integer cameras; missing and -1 mean unknown.
        metric: as in :func:`~lreid.retrieval.evaluate`.

    Returns:
        mAP in [0, 1]; 0 if no identity has two images.
    """
    labels, cameras = (as_labels(*each, len(features)) for each in ((labels, "labels"), (cameras, "cameras")))
    labelled = labels != JUNK
    features, labels, cameras = features[labelled], labels[labelled], cameras[labelled]
    identities = len(np.unique(labels))
    if identities == len(labels):
        return 0.0
    separate = np.arange(len(labels)) + cameras.max() + 1  # a separate camera for every image
    cameras = np.where(cameras == UNKNOWN, separate, cameras)
    places = len(np.unique(np.stack([labels, cameras]), axis=1).T)
    if places == identities:  # no identity was seen by two cameras
        cameras = separate
    return evaluate(features, features, labels, labels, cameras, cameras, metric=metric).mAP
