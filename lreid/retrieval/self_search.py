"""Retrieval within a sample of images, which shows how well a network distinguishes the identities in the sample."""

import numpy as np

from lreid.identities import JUNK, UNKNOWN, as_labels
from lreid.retrieval.ranking import evaluate
from lreid.retrieval.scores import Metric


def self_retrieval(
    features: np.ndarray, labels: np.ndarray, cameras: np.ndarray, *, metric: Metric = "cosine"
) -> float:
    """Use every image as a query among all other images of the sample, and return the mAP.

    The camera filter leaves out images with the query's identity and camera.

    If no identity was seen by two cameras, every image is treated as coming from a separate camera. An image of unknown
    camera is also treated as coming from a separate camera.

    Args:
        features: ``(n, D)`` float.
        labels: ``(n,)`` integers, the identities; images whose identity is missing or junk (-1) are left out.
        cameras: ``(n,)`` integers; a missing camera and -1 mean unknown.
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
