"""Cluster images by their features, without labels."""

import numpy as np
import torch

from lreid.extras import Extra
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.camera_norm import CameraNorm
from lreid.retrieval.rerank import KReciprocal, ReRankedScores

hierarchy = Extra("scipy.cluster.hierarchy", "cluster")

FARTHEST = 0.6  # clusters are merged up to this mean Jaccard distance
BLOCK = 512  # rows of distances that are computed at once


def cluster(features: np.ndarray, units: np.ndarray, cameras: np.ndarray, size: int) -> np.ndarray:
    """Cluster features by average linkage on Jaccard distances between sets of k-reciprocal neighbours.

    SpCL and MMT also use these Jaccard distances, but cluster by DBSCAN. DBSCAN merges two clusters that have one pair
    of similar images, and training on the wrong labels then makes the two identities more similar. Average linkage
    merges two clusters only if their images are similar on average. For n units, distances and linkage need 8 n (n - 1)
    bytes of memory.

    Args:
        features: (n, D) float features of images. units: (n,) integers, such as tracklets. The features of a unit are
            averaged, so that all images of a unit get the same cluster.
        cameras: (n,) integers, -1 if unknown. With several cameras, features are standardised per camera
            (:class:`lreid.retrieval.CameraNorm`); otherwise images would cluster by camera instead of identity.
        size: approximate number of units per identity, the k1 of the k-reciprocal neighbours; k2 is 30 % of k1. SpCL
            uses k1 = 30 and k2 = 6 for about 20 images per identity.

    Returns:
        Cluster numbers (n,) int64, -1 for images outside all clusters. A unit with several images always has a cluster.
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
