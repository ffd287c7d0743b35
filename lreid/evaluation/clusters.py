"""Cluster images by their features, without labels."""

import numpy as np
import torch

from lreid.extras import Extra
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.camera_norm import CameraNorm
from lreid.retrieval.rerank import KReciprocal, ReRankedScores

sklearn, sparse = Extra("sklearn.cluster", "cluster"), Extra("scipy.sparse", "cluster")

# Values for identities with few images, as in rendered-domains. SpCL has about 20 images per identity and uses 30, 6,
# 0.6 (radius) and 4 (fewest).
NEIGHBOURS = KReciprocal(k1=10, k2=3, weight=0.0)
RADIUS = 0.5  # maximum Jaccard distance of neighbours
FEWEST = 2  # minimum number of images or tracklets within the radius of a core point, including itself
BLOCK = 512  # rows of distances in memory


def cluster(features: np.ndarray, units: np.ndarray, cameras: np.ndarray) -> np.ndarray:
    """Cluster features by DBSCAN on the Jaccard distances of their k-reciprocal neighbours.

    Args:
        features: (n, D) float features of images. units: (n,) integers, such as tracklets. The rows of a unit are
            replaced by their mean and so share a cluster.
        cameras: (n,) integers, -1 if unknown. Features of several cameras are standardised per camera
            (:class:`lreid.retrieval.CameraNorm`); otherwise the clusters would be cameras rather than identities.

    Returns:
        Cluster numbers (n,) int64, -1 for no cluster. A unit of several rows is never without a cluster.
    """
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
        rows.append(sparse.csr_array((distances[near], near), shape=distances.shape))
    graph = sparse.vstack(rows, format="csr")
    numbers = sklearn.DBSCAN(eps=RADIUS, min_samples=FEWEST, metric="precomputed").fit_predict(graph)
    single = (numbers == -1) & (sizes > 1)
    numbers[single] = numbers.max(initial=-1) + 1 + np.arange(single.sum())
    return numbers.astype(np.int64)[unit]
