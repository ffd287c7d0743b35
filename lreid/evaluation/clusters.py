"""Cluster images by their features, without labels."""

import numpy as np
import torch

from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.camera_norm import CameraNorm
from lreid.retrieval.rerank import KReciprocal, ReRankedScores
from lreid.utils.extras import Extra

hierarchy = Extra("scipy.cluster.hierarchy", "cluster")

FARTHEST = 0.6  # clusters are merged up to this mean Jaccard distance
BLOCK = 512  # rows of distances that are computed at once


def cluster(features: np.ndarray, units: np.ndarray, cameras: np.ndarray, size: int) -> np.ndarray:
    """Cluster features by average linkage; distances are Jaccard distances between sets of k-reciprocal neighbours.

    SpCL and MMT use the same distances but cluster by DBSCAN. DBSCAN merges two clusters as soon as one pair of their
    images is similar, and training on the wrong labels then makes both identities more similar. Average linkage merges
    two clusters only if their images are similar on average. For n units, the distances and the linkage need 8 n (n -
    1) bytes of memory.

    Args:
        features: (n, D) float features of images. units: (n,) integers, such as tracklets. Features are averaged over a
            unit, so that all its images get the same cluster.
        cameras: (n,) integers, -1 if unknown. With several cameras, features are standardised per camera
            (:class:`lreid.retrieval.CameraNorm`), because images would otherwise cluster by camera instead of by
            identity.
        size: approximate number of units per identity. The k-reciprocal neighbours are computed with k1 = ``size`` and
            k2 = 30 % of k1. For about 20 images per identity, SpCL uses k1 = 30 and k2 = 6.

    Returns:
        Cluster numbers (n,) int64, -1 for images in no cluster. A unit with several images is always in a cluster.
    """
    if len(features) == 0:
        return np.empty(0, np.int64)
    _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    if len(set(cameras.tolist())) > 1:
        features = CameraNorm.estimate(features, cameras)(features, cameras)
    images = unit_rows(torch.from_numpy(features), "features")  # (n, D)
    points = images.new_zeros(len(sizes), images.shape[1]).index_add_(0, torch.from_numpy(unit), images)  # (u, D)
    neighbours = KReciprocal(k1=size, k2=max(round(0.3 * size), 1), weight=0.0)
    scores = ReRankedScores(unit_rows(points, "features"), 0, neighbours)  # no image is a query
    count = len(points)
    distances = np.empty(count * (count - 1) // 2)  # each pair once, as in SciPy
    filled = 0
    for start in range(0, count, BLOCK):
        block = (-scores(slice(start, min(start + BLOCK, count)))).clamp(min=0).numpy()  # (B, u)
        for row, others in enumerate(block, start):
            distances[filled : filled + count - row - 1] = others[row + 1 :]
            filled += count - row - 1
    numbers = np.zeros(1, np.int64)
    if count > 1:
        numbers = hierarchy.fcluster(hierarchy.linkage(distances, "average"), FARTHEST, "distance").astype(np.int64)
    images_each = np.bincount(numbers, sizes)  # per cluster
    return np.where(images_each[numbers] > 1, numbers, -1)[unit]
