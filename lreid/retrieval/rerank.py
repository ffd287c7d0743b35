"""k-reciprocal re-ranking and query expansion, in memory that grows linearly with the number of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.retrieval.arrays import as_comparable, positions, squared_norms, unit_rows
from lreid.retrieval.scores import Metric, blocks, check_metric
from lreid.utils.devices import full_precision


@dataclass(frozen=True)
class KReciprocal:
    """k-reciprocal re-ranking (Zhong et al., CVPR 2017), an argument of :func:`lreid.retrieval.evaluate`.

    The k-reciprocal neighbours of each image are described by a sparse vector over all N = Q + G images. The re-ranked
    distance is a weighted mean of the original distance and of the Jaccard distance between two such vectors. The
    original distance is the squared Euclidean distance (of unit vectors for ``cosine``), divided by the largest
    distance in its row. lreid gives the rankings of the authors' code without dense N × N matrices. Re-ranking uses all
    queries together, so its metrics must not be compared with metrics of rankings without re-ranking.

    Attributes:
        k1: number of nearest neighbours that can be reciprocal neighbours.
        k2: number of neighbours over which vectors are averaged; 1 means no averaging.
        weight: weight of the original distance, in [0, 1] (lambda in the paper).
    """

    k1: int = 20
    k2: int = 6
    weight: float = 0.3

    def __call__(self, queries: Tensor, gallery: Tensor, metric: Metric = "cosine") -> ReRankedScores:
        """Return the scores of queries ``(Q, D)`` with a gallery ``(G, D)`` of the same dtype and device.

        Raises:
            InputError: an option is invalid, the metric is unknown, or features are not finite.
        """
        if self.k1 < 1 or not 1 <= self.k2 <= self.k1 + 1 or not 0 <= self.weight <= 1:
            raise InputError(f"{self}: needs k1 of at least 1, k2 from 1 to k1 + 1 and weight in [0, 1]")
        check_metric(metric)
        if metric == "cosine":
            queries, gallery = unit_rows(queries, "query features"), unit_rows(gallery, "gallery features")
        else:
            queries, gallery = positions(queries, gallery)
        return ReRankedScores(torch.cat([queries, gallery]), len(queries), self)


class SparseRows(NamedTuple):
    """Sparse vectors: row i has values ``values[bounds[i]:bounds[i + 1]]`` in ``columns[bounds[i]:bounds[i + 1]]``."""

    bounds: np.ndarray  # (N + 1,)
    columns: np.ndarray  # (nonzero,)
    values: np.ndarray  # (nonzero,)

    def entries(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of all entries of the given rows, and for each entry its index into ``rows``."""
        count = self.bounds[rows + 1] - self.bounds[rows]
        row_of = np.repeat(np.arange(len(rows)), count)
        within = np.arange(len(row_of)) - np.repeat(np.cumsum(count) - count, count)
        return self.bounds[rows][row_of] + within, row_of


class ReRankedScores:
    """Negative re-ranked distances, computed in blocks of queries; :class:`KReciprocal` creates this object."""

    def __init__(self, features: Tensor, num_queries: int, settings: KReciprocal):
        self.features, self.num_queries, self.weight = features, num_queries, settings.weight
        self.shape = num_queries, len(features) - num_queries
        self.squares = squared_norms(features, "features")  # (N,)
        neighbours, self.furthest = self._nearest(min(settings.k1 + 1, len(features)))
        half = min(int(np.around(settings.k1 / 2)) + 1, neighbours.shape[1])
        vectors = self._reciprocal_vectors(neighbours, half)
        if settings.k2 > 1:
            vectors = _average(vectors, neighbours[:, : settings.k2])
        self.vectors = vectors
        self.images_by_column = _transpose_gallery(vectors, num_queries)

    def __call__(self, here: slice) -> Tensor:
        """Return the scores ``(B, G)`` of a slice of the queries with the whole gallery; higher scores are better."""
        gallery = slice(self.num_queries, None)
        original = self._distances(here)[:, gallery] / self.furthest[here, None]  # (B, G)
        overlap = np.zeros(original.shape, dtype=self.vectors.values.dtype)  # (B, G) sum of minima
        for row, query in enumerate(range(here.start, here.stop)):
            query_entries, _ = self.vectors.entries(np.array([query]))
            places, entry_of = self.images_by_column.entries(self.vectors.columns[query_entries])
            smaller = np.minimum(self.vectors.values[query_entries][entry_of], self.images_by_column.values[places])
            overlap[row] = np.bincount(self.images_by_column.columns[places], smaller, len(overlap[row]))
        overlap = torch.from_numpy(overlap).to(original.device)
        jaccard = 1 - overlap / (2 - overlap)  # every vector sums to 1
        return -(jaccard * (1 - self.weight) + original * self.weight)

    def _distances(self, here: slice) -> Tensor:
        """Compute squared Euclidean distances ``(B, N)`` of a slice of all images."""
        with full_precision():
            products = self.features[here] @ self.features.T
        return products.mul_(-2).add_(self.squares).add_(self.squares[here, None]).clamp_(min=0)

    def _nearest(self, count: int) -> tuple[np.ndarray, Tensor]:
        """Return each image's ``count`` nearest images, including itself, and its distance to the farthest image."""
        neighbours, furthest = [], []
        for chunk in blocks(len(self.features), len(self.features)):
            distances = self._distances(chunk)
            rows = torch.arange(len(distances), device=distances.device)
            distances[rows, rows + chunk.start] = -1.0  # despite rounding, the image itself comes first
            neighbours.append(distances.topk(count, largest=False).indices.cpu().numpy())
            furthest.append(distances.amax(1))
        return np.concatenate(neighbours), torch.cat(furthest).clamp_(min=torch.finfo(distances.dtype).tiny)

    def _reciprocal_vectors(self, neighbours: np.ndarray, half: int) -> SparseRows:
        """Return each image's expanded k-reciprocal neighbours, weighted by exp(-distance) with sum 1 (Eq. 5-7)."""
        num_images = len(neighbours)
        mutual = _is_mutual(neighbours)  # (N, K)
        near = neighbours[:, :half]  # (N, H)
        near_mutual = _is_mutual(near)
        rows, columns = [], []
        for chunk in blocks(num_images, neighbours.shape[1] ** 2 * half):
            reciprocal = np.where(mutual[chunk], neighbours[chunk], -1)  # (B, K), -1 for other neighbours
            expansion = np.where(near_mutual[neighbours[chunk]], near[neighbours[chunk]], -2)  # (B, K, H)
            shared = (expansion[..., None] == reciprocal[:, None, None]).any(3).sum(2)  # (B, K)
            joins = mutual[chunk] & (shared > 2 / 3 * (expansion >= 0).sum(2))
            expansion[~joins] = -2
            members = np.concatenate([reciprocal, expansion.reshape(len(reciprocal), -1)], axis=1)
            row, place = np.nonzero(members >= 0)
            pairs = np.unique((row + chunk.start) * num_images + members[row, place])
            rows.append(pairs // num_images)
            columns.append(pairs % num_images)
        rows, columns = np.concatenate(rows), np.concatenate(columns)
        weights = np.exp(-self._pair_distances(rows, columns))
        sums = np.bincount(rows, weights, num_images)
        return SparseRows(_bounds(rows, num_images), columns, (weights / sums[rows]).astype(weights.dtype))

    def _pair_distances(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Compute the distances of single pairs, divided by the largest distance in their row."""
        distances = []
        for chunk in blocks(len(rows), 16 * self.features.shape[1]):  # small enough for the cache
            row, column = (torch.from_numpy(part[chunk]).to(self.features.device) for part in (rows, columns))
            squares = (self.features[row] - self.features[column]).square().sum(1)
            distances.append((squares / self.furthest[row]).cpu().numpy())
        return np.concatenate(distances)


def _is_mutual(neighbours: np.ndarray) -> np.ndarray:
    """Check whether each image is a neighbour of each of its K neighbours: ``(N, K)`` bool for N images."""
    mutual = np.empty(neighbours.shape, dtype=bool)
    for chunk in blocks(len(neighbours), neighbours.shape[1] ** 2):
        images = np.arange(chunk.start, chunk.stop)[:, None, None]
        mutual[chunk] = (neighbours[neighbours[chunk]] == images).any(2)
    return mutual


def _average(vectors: SparseRows, neighbours: np.ndarray) -> SparseRows:
    """Replace each row by the mean of its neighbours' rows; ``neighbours`` is ``(N, k2)``."""
    num_images, count = neighbours.shape
    rows, columns, values = [], [], []
    for chunk in blocks(num_images, 2**12):
        places, row_of = vectors.entries(neighbours[chunk].reshape(-1))
        pairs = (chunk.start + row_of // count) * num_images + vectors.columns[places]
        distinct, inverse = np.unique(pairs, return_inverse=True)
        rows.append(distinct // num_images)
        columns.append(distinct % num_images)
        sums = np.bincount(inverse, vectors.values[places], len(distinct))
        values.append((sums / count).astype(vectors.values.dtype))
    return SparseRows(_bounds(np.concatenate(rows), num_images), np.concatenate(columns), np.concatenate(values))


def _transpose_gallery(vectors: SparseRows, num_queries: int) -> SparseRows:
    """For every image, find the gallery images (counted from 0) whose vectors contain it."""
    num_images = len(vectors.bounds) - 1
    places, image_of = vectors.entries(np.arange(num_queries, num_images))
    order = np.argsort(vectors.columns[places], kind="stable")
    bounds = _bounds(vectors.columns[places][order], num_images)
    return SparseRows(bounds, image_of[order], vectors.values[places][order])


def _bounds(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Return the position of each row's first entry in ascending row numbers, and the end of the last row."""
    return np.searchsorted(rows, np.arange(num_rows + 1))


def expand_queries(
    query_features: Any, gallery_features: Any, *, k: int = 5, alpha: float = 3.0, device: Any = None
) -> Tensor:
    """Average query expansion, weighted by similarity (Chum et al., 2007; Radenović et al., 2018).

    An expanded query is the weighted sum of the query and its ``k`` nearest gallery images. The weight of an image is
    its cosine similarity to the power of ``alpha``, or 0 if the similarity is negative. With ``alpha=0``, all weights
    are 1.

    Args:
        query_features: ``(Q, D)`` floats, array or tensor.
        gallery_features: ``(G, D)`` floats, array or tensor.
        k: number of gallery images per query, 1 or more.
        alpha: exponent of the weights, 0 or more.
        device: device of the computation; ``None`` means the device of the gallery features.

    Returns:
        Unit vectors ``(Q, D)`` to search with instead of the queries.

    Raises:
        InputError: the features are invalid, ``k`` is below 1, or ``alpha`` is below 0.
    """
    if k < 1 or alpha < 0:
        raise InputError(f"query expansion: k = {k} must be at least 1 and alpha = {alpha} at least 0")
    queries, gallery = as_comparable(query_features, gallery_features, device)  # (Q, D), (G, D)
    queries, gallery = unit_rows(queries, "query features"), unit_rows(gallery, "gallery features")
    expanded = torch.empty_like(queries)
    for chunk in blocks(len(queries), len(gallery)):
        with full_precision():
            scores = queries[chunk] @ gallery.T  # (B, G)
        similarity, nearest = scores.topk(min(k, len(gallery)))  # (B, k)
        weights = torch.where(similarity > 0, similarity.clamp(min=0) ** alpha, 0)
        expanded[chunk] = queries[chunk] + torch.einsum("bk,bkd->bd", weights, gallery[nearest])
    return unit_rows(expanded, "expanded queries")
