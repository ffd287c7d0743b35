"""Scores of all gallery images for a block of queries: exact scores, re-ranked scores, or scores of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.retrieval.arrays import as_comparable, directions, positions, repeated_rows, squared_norms, unit_rows
from lreid.utils.devices import full_precision

BLOCK_SCORES = 2**24  # maximum number of scores in memory at a time, 64 MB in float32
RESULTS_PER_CALL = 2**22  # maximum number of results per search call, 50 MB
# Scores whose difference, relative to the vectors' norms, is at most 128 rounding errors of float32 count as equal.
# With 2,048 dimensions, the measured differences were 20 rounding errors on an H200 and 8 on a CPU.
ROUNDING = 2**-16

Metric = Literal["cosine", "euclidean", "sqeuclidean"]
ReRanking: TypeAlias = "Callable[[Tensor, Tensor, Metric], BlockScores]"
ExactScores: TypeAlias = "Cosines | Scorer"  # computed from the features ``queries`` (Q, D) and those of the gallery


def check_metric(metric: str) -> None:
    """Refuse an unknown metric."""
    if metric not in get_args(Metric):
        raise InputError(f"metric {metric!r}: unknown; use cosine, euclidean or sqeuclidean")


class BlockScores(Protocol):
    """Scores of all queries with all gallery images, computed in blocks."""

    shape: tuple[int, int]

    def __call__(self, here: slice) -> Tensor:
        """Return the scores ``(B, G)`` of a slice of the queries; a higher score means a nearer image."""


class Cosines:
    """Scores of unit vectors: dot products, which are cosines in [-1, 1] up to rounding.

    Args:
        queries: ``(Q, D)`` unit vectors.
        gallery: ``(G, D)`` unit vectors of the same dtype and device.
    """

    def __init__(self, queries: Tensor, gallery: Tensor):
        self.queries, self.gallery = queries, gallery
        self.shape = len(queries), len(gallery)

    def __call__(self, here: slice) -> Tensor:
        """Return the cosines ``(B, G)`` of a slice of the queries."""
        with full_precision():
            return self.queries[here] @ self.gallery.T

    def sizes(self, queries: Tensor, columns: Tensor) -> Tensor:
        """Return the magnitudes of the rounding errors ``(B, k)`` or ``(B, 1)``, for queries ``(B, D)``."""
        return queries.norm(dim=1, keepdim=True)


class Scorer:
    """Scores of queries with gallery images; higher means nearer, and bitwise equal gallery rows get equal scores.

    Args:
        queries: ``(Q, D)`` features.
        gallery: ``(G, D)`` features of the same dtype and device.
        metric: see :func:`lreid.retrieval.evaluate`.

    Attributes:
        scale: ``(G,)`` positive factors of the scores (1 / norm of each gallery row), or None for distances.
    """

    def __init__(self, queries: Tensor, gallery: Tensor, metric: Metric):
        check_metric(metric)
        # For a query q, cosine ranks like q·g / |g| and the distance like q·g - |g|² / 2.
        self.scale = self.term = None  # (G,) each
        if metric == "cosine":
            queries, _ = directions(queries, "query features")
            gallery, self.scale = directions(gallery, "gallery features")
        else:
            queries, gallery = positions(queries, gallery)
            self.term = squared_norms(gallery, "gallery features") / 2
        self.queries, self.gallery = queries, gallery
        self.shape = len(queries), len(gallery)
        self.buffer = gallery.new_empty(0, len(gallery))
        self.repeats, self.originals = repeated_rows(gallery)
        if self.scale is not None:
            self.scale[self.repeats] = self.scale[self.originals]

    def __call__(self, here: slice) -> Tensor:
        """Return the scores ``(B, G)`` of a slice of the queries; the next call overwrites these scores."""
        scores = self.unscaled(here)
        return scores if self.scale is None else scores.mul_(self.scale)

    def unscaled(self, here: slice) -> Tensor:
        """Return scores ``(B, G)`` before the multiplication by ``scale``; the next call overwrites them."""
        queries = self.queries[here]  # (B, D)
        if len(self.buffer) < len(queries):
            self.buffer = self.gallery.new_empty(len(queries), len(self.gallery))
        with full_precision():
            scores = torch.mm(queries, self.gallery.T, out=self.buffer[: len(queries)])  # (B, G)
        if self.term is not None:
            scores.sub_(self.term)
        scores[:, self.repeats] = scores[:, self.originals]
        return scores

    def sizes(self, queries: Tensor, columns: Tensor) -> Tensor:
        """Return norms of queries (cosine) or sums of both squared norms (distances), see :class:`Cosines`."""
        if self.term is None:
            return queries.norm(dim=1, keepdim=True)
        return queries.square().sum(1, keepdim=True) + 2 * self.term[columns]


class Search(Protocol):
    """A function that returns gallery images for queries.

    Attributes:
        seconds: time to build the index, or None if it is not known.
        megabytes: size of the index, or None if it is not known.
        max_results: maximum number of results per query.
        complete: whether the results are all gallery images, in the order of the gallery.
    """

    max_results: int
    complete: bool

    @property
    def seconds(self) -> float | None: ...  # noqa: D102

    @property
    def megabytes(self) -> float | None: ...  # noqa: D102

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and gallery rows ``(B, k)`` of the results for queries ``(B, D)``.

        The scores rank like those of :class:`lreid.retrieval.scores.Scorer`; those of an incomplete search approximate
        them, in any order. A query with fewer than k results has row -1 in the remaining places.
        """

    def nearest(self, queries: Tensor) -> np.ndarray:
        """Return the rows ``(B, depth)`` of the nearest gallery images, nearest first; -1 for missing results."""


class IndexScores:
    """Scores of the images that a search returns; all other images have the score :func:`score_of_missing`.

    A complete search ranks by its own scores. In other searches, the exact score replaces a score that differs from it
    only by rounding, so that an index of full vectors ranks the images that it returns exactly, even those with equal
    scores. An index of compressed codes ranks by approximate scores.

    Args:
        queries: ``(Q, D)`` features of the queries.
        num_gallery: number G of images in the gallery.
        exact: exact scores of the same queries with all images, or ``None`` without gallery features and for a complete
            search.
    """

    def __init__(self, search: Search, queries: Tensor, num_gallery: int, exact: ExactScores | None = None) -> None:
        self.search, self.queries, self.exact = search, queries, exact
        self.shape = len(queries), num_gallery

    def __call__(self, here: slice) -> Tensor:
        """Return the scores ``(B, G)`` of a slice of the queries."""
        queries, num_gallery = self.queries[here], self.shape[1]
        if self.search.complete:
            return self.search(queries)[0]
        exact = None if self.exact is None else self.exact(here)  # (B, G)
        # The last column is for missing results.
        scores = queries.new_full((len(queries), num_gallery + 1), score_of_missing(queries.dtype))
        for part in blocks(len(queries), 1, max(1, RESULTS_PER_CALL // self.search.max_results)):
            block_scores, rows = (each.to(queries.device) for each in self.search(queries[part]))  # (b, k)
            if exact is not None:
                block_scores = self._corrected(block_scores, exact[part], queries[part], rows)
            scores[part].scatter_(1, torch.where(rows < 0, num_gallery, rows), block_scores.to(scores.dtype))
        return scores[:, :num_gallery]

    def _corrected(self, approximate: Tensor, exact: Tensor, queries: Tensor, rows: Tensor) -> Tensor:
        """Replace scores ``(b, k)`` that differ from the exact scores ``(b, G)`` only by rounding."""
        assert self.exact is not None
        columns = rows.clamp(min=0)
        right = exact.gather(1, columns)  # (b, k)
        wrong = (approximate - right).abs_() > ROUNDING * self.exact.sizes(queries, columns)
        return torch.where(wrong, approximate.to(right.dtype), right) if wrong.any() else right


def score_of_missing(dtype: torch.dtype) -> float:
    """Return the score of images that a search does not return. The score is below every other score."""
    return torch.finfo(dtype).min / 2


def rank_missing_last(scores: Tensor, rows: np.ndarray, columns: np.ndarray) -> None:
    """Move the matches ``scores[rows, columns]`` that a search did not return to the end of the ranking, in place."""
    missing = (scores[rows, columns] <= score_of_missing(scores.dtype)).cpu().numpy()
    if missing.any():
        scores[rows[missing], columns[missing]] = torch.finfo(scores.dtype).min


def blocks(count: int, width: int, block: int | None = None) -> Iterator[slice]:
    """Yield slices of ``block`` rows. By default, a slice has about 64 MB, at ``width`` float32 numbers per row."""
    block = block or max(1, BLOCK_SCORES // width)
    for start in range(0, count, block):
        yield slice(start, min(start + block, count))


def scores_of(
    query_features: Any,
    gallery_features: Any,
    metric: Metric = "cosine",
    *,
    device: torch.device | str | None = None,
    rerank: ReRanking | None = None,
    search: Search | None = None,
) -> BlockScores:
    """Return scores that rank the gallery for every query, with the arguments of :func:`lreid.retrieval.evaluate`."""
    queries, gallery = as_comparable(query_features, gallery_features, device)  # (Q, D), (G, D)
    if rerank is None:
        if search and search.complete:
            return IndexScores(search, queries, len(gallery))
        exact = Scorer(queries, gallery, metric)
        return IndexScores(search, exact.queries, len(gallery), exact) if search else exact
    if search:
        raise InputError("re-ranking compares all images with all, so it cannot use a search")
    return rerank(queries, gallery, metric)


def cosines_of(
    query_features: Any,
    gallery_features: Any,
    *,
    device: torch.device | str | None = None,
    search: Search | None = None,
) -> BlockScores:
    """Return cosine similarities in [-1, 1] to compare with a threshold, with the arguments of :func:`scores_of`."""
    queries, gallery = as_comparable(query_features, gallery_features, device)  # (Q, D), (G, D)
    if search and search.complete:
        return IndexScores(search, queries, len(gallery))
    exact = Cosines(unit_rows(queries, "query features"), unit_rows(gallery, "gallery features"))
    return IndexScores(search, exact.queries, len(gallery), exact) if search else exact
