"""Clusters of images by their features, without labels."""

from __future__ import annotations

import numpy as np
import torch

from lreid.extras import Extra
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.camera_norm import CameraNorm
from lreid.retrieval.rerank import KReciprocal, ReRankedScores

sklearn = Extra("sklearn.cluster", "cluster")

# For identities with few images, as on rendered-domains: SpCL has 30, 6, 0.6 and 4 for some 20 images per identity.
NEIGHBOURS = KReciprocal(k1=10, k2=3, weight=0.0)
RADIUS = 0.5  # Jaccard distance of neighbours
FEWEST = 2  # images or tracklets within the radius of a core point, itself among them
BLOCK = 512  # rows of distances in memory


def cluster(features: np.ndarray, units: np.ndarray, cameras: np.ndarray) -> np.ndarray:
    """Clusters features by DBSCAN on the Jaccard distances of their k-reciprocal neighbours.

    Args:
        features: (n, D) floats.
        units: (n,) integers: rows of one unit, a tracklet, are a single point, their mean, and so in one cluster.
        cameras: (n,) integers, -1 where unknown. Features are standardised per camera, if there are several
            (:class:`lreid.retrieval.CameraNorm`); otherwise clusters would be cameras rather than identities.

    Returns:
        (n,) int64 numbers of clusters, -1 for none. A unit of several rows in no cluster is one of its own.
    """
    from scipy.sparse import csr_array, vstack

    if len(features) == 0:
        return np.empty(0, np.int64)
    _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    if len(set(cameras.tolist())) > 1:
        features = CameraNorm.estimate(features, cameras)(features, cameras)
    images = unit_rows(torch.from_numpy(features), "features")  # (n, D)
    points = images.new_zeros(len(sizes), images.shape[1]).index_add_(0, torch.from_numpy(unit), images)  # (u, D)
    scores = ReRankedScores(unit_rows(points, "features"), 0, NEIGHBOURS)  # no image is a query
    rows = []
    for start in range(0, len(points), BLOCK):
        distances = (-scores(slice(start, min(start + BLOCK, len(points))))).clamp(min=0).numpy()  # (B, u)
        near = np.nonzero(distances <= RADIUS)
        rows.append(csr_array((distances[near], near), shape=distances.shape))
    graph = vstack(rows, format="csr")
    numbers = sklearn.DBSCAN(eps=RADIUS, min_samples=FEWEST, metric="precomputed").fit_predict(graph)
    single = (numbers == -1) & (sizes > 1)
    numbers[single] = numbers.max(initial=-1) + 1 + np.arange(single.sum())
    return numbers.astype(np.int64)[unit]
