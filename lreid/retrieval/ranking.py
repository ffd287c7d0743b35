"""Exact CMC, AP, mAP and mINP of full rankings, in about the time of one matrix product.

All metrics follow from the ranks of the matches. The rank of a match is the number of gallery images ahead of it, so
lreid counts these images and does not sort. Queries are processed in blocks, so that memory never contains the full
query × gallery matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from lreid.errors import ArgumentError, InputError
from lreid.retrieval.matches import SameIdentity, count_ahead
from lreid.retrieval.scores import BlockScores, Metric, Scorer, Search, blocks, rank_missing_last, scores_of
from lreid.utils.identities import JUNK, Labels, Outfits, comparable, usable

if TYPE_CHECKING:
    from lreid.retrieval.rerank import KReciprocal

AveragePrecision = Literal["rectangular", "trapezoidal"]
Pairs = tuple[np.ndarray, np.ndarray]  # query rows and gallery columns, (P,) each


class Matches(NamedTuple):
    """All P matches of the queries of one search: query after query, by ascending rank.

    Attributes:
        queries: ``(P,)`` row of the query.
        ranks: ``(P,)`` rank, counted from 1.
        cameras: ``(P,)`` camera of the match, or None without cameras.
    """

    queries: np.ndarray
    ranks: np.ndarray
    cameras: np.ndarray | None = None


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The metrics of one search of a gallery, as fractions in [0, 1].

    Attributes:
        mAP: mean average precision.
        mINP: mean inverse negative penalty: number of matches / rank of the last match (Ye et al., 2021).
        cmc: ``(max_rank,)`` float64. The entry ``cmc[k - 1]`` is Rank-k, the share of queries with a match in ranks 1
            to k.
        ap: ``(Q,)`` float64, the average precision of each query; NaN if the query has no match.
        num_valid: number of queries with at least one match.
        num_absent: number of queries without a match because their identity is not in the gallery.
        num_filtered: number of queries without a match because the camera filter removed all their matches.
        identities, cameras: ``(Q,)`` identity and camera of each query; ``cameras`` is None without cameras.
        matches: the ranks of all matches.
    """

    mAP: float
    mINP: float
    cmc: np.ndarray
    ap: np.ndarray
    num_valid: int
    num_absent: int
    num_filtered: int
    identities: np.ndarray
    cameras: np.ndarray | None
    matches: Matches

    @property
    def ranks(self) -> list[np.ndarray]:
        """For each query, the ranks of its matches, ascending and counted from 1; empty without a match."""
        counts = np.bincount(self.matches.queries, minlength=len(self.ap))
        return np.split(self.matches.ranks, np.cumsum(counts)[:-1])

    @cached_property
    def by_camera(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """For each query and camera of its matches: both cameras as text, the AP, and whether a match ranks first.

        Matches in other cameras are left out of each of these rankings, and AP is rectangular.
        """
        queries, ranks, cameras = self.matches
        if self.cameras is None or cameras is None:
            return [], np.empty(0), np.empty(0)
        wrong = ranks - 1 - _places(queries)  # images of other identities ahead of each match
        names, code = np.unique(cameras, return_inverse=True)
        groups = queries * len(names) + code  # one per query and camera of its matches
        order = np.argsort(groups, kind="stable")
        wrong, groups = wrong[order], groups[order]
        right = _places(groups) + 1
        start = np.flatnonzero(right == 1)
        precisions = np.add.reduceat(right / (wrong + right), start) / np.diff(start, append=len(groups))
        rows, columns = np.divmod(groups[start], len(names))
        texts = [f"{self.cameras[row]} → {names[column]}" for row, column in zip(rows, columns, strict=True)]
        return texts, precisions, wrong[start] == 0

    def __repr__(self) -> str:
        ranks = "".join(f", Rank-{k} {100 * self.cmc[k - 1]:.1f}" for k in (1, 5, 10) if k <= len(self.cmc))
        figures = f"mAP {100 * self.mAP:.1f}{ranks}, mINP {100 * self.mINP:.1f} per cent"
        return f"Evaluation({figures}, {self.num_valid} of {len(self.ap)} queries with a match)"

    @property
    def warning(self) -> str:
        """Message with the number of queries without a match and the reasons; empty if all queries have one."""
        if self.num_valid == len(self.ap):
            return ""
        return (
            f"{len(self.ap) - self.num_valid} of {len(self.ap)} queries have no match: "
            f"{self.num_absent} with an identity that is not in the gallery, "
            f"{self.num_filtered} with one that occurs only under the query's own camera"
        )


def _places(groups: np.ndarray) -> np.ndarray:
    """Number the entries of each group from 0; entries of a group are neighbours."""
    start = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - np.repeat(start, np.diff(start, append=len(groups)))


def evaluate(
    query_features: Any,
    gallery_features: Any,
    query_ids: Any,
    gallery_ids: Any,
    query_cams: Any = None,
    gallery_cams: Any = None,
    *,
    metric: Metric = "cosine",
    ap: AveragePrecision = "rectangular",
    camera_filter: bool = True,
    max_rank: int = 50,
    block: int | None = None,
    device: torch.device | str | None = None,
    rerank: KReciprocal | None = None,
    search: Search | None = None,
) -> Evaluation:
    """Rank the gallery for every query and compute the metrics of the rankings.

    A query's ranking leaves out gallery images with identity -1 (junk). With ``camera_filter``, the ranking also leaves
    out images with the query's identity *and* camera. All other images are ranked, including distractors (images of
    people who are not queries).

    Images with equal scores keep their order in the gallery, on every device. Gallery rows that are bitwise equal
    always get equal scores here, which a simple matrix product does not guarantee. Because of rounding, the last bit of
    a score may depend on ``block`` and on the device. With re-ranking, neither the order of equal scores nor equal
    scores of equal rows are guaranteed.

    Args:
        query_features: ``(Q, D)`` floats, array or tensor. float64 features give float64 scores.
        gallery_features: ``(G, D)`` floats, array or tensor.
        query_ids, gallery_ids: identities ``(Q,)`` and ``(G,)``, all integers or all text, see
            :mod:`lreid.utils.identities`. A query whose identity is missing (``None``, NaN, blank text) or junk
            (-1, "-1") has no match. Such a gallery image is in no ranking.
        query_cams, gallery_cams: cameras ``(Q,)`` and ``(G,)``, all integers or all text; they are not needed without
            the camera filter. Images whose camera is missing or -1 are never filtered.
        metric: ``cosine``, ``euclidean`` or ``sqeuclidean``. ``cosine`` compares directions, and a zero vector has
            cosine similarity 0 to every vector. ``euclidean`` and ``sqeuclidean`` give the same ranking.
        ap: convention of average precision. ``rectangular`` averages the precision at the matches, and mAP is the mean
            over queries with a match, as in reid-strong-baseline and torchreid. ``trapezoidal`` is the AP of the first
            Market-1501 code, in which mAP is the mean over *all* queries, as in DwoPP's code. In the trapezoidal AP,
            the i-th match (from 0) at rank r (from 0) contributes the mean of (i + 1) / (r + 1) and i / r (1 at r = 0).
        camera_filter: whether to leave out gallery images with the query's identity and camera.
        max_rank: length of the CMC curve.
        block: number of queries per block; with ``None``, a block has about 64 MB.
        device: device of the computation; ``None`` means the device of the gallery features.
        rerank: re-ranking to apply first, see :class:`lreid.retrieval.KReciprocal`.
        search: search that returns the images to rank, for example ``FaissIndex("hnsw").over(gallery_features,
            metric)``. All images that the search does not return are ranked last, matches after other images. A
            ``flat`` index returns all images; its metrics equal those of exact ranking up to the order of images whose
            scores differ by less than the rounding error of :class:`lreid.retrieval.flat.FlatSearch`.

    Raises:
        InputError: the input is invalid, or no query has a match; the message says which filter removed the matches.
    """
    if not camera_filter:
        query_cams = gallery_cams = None
    elif query_cams is None or gallery_cams is None:
        raise ArgumentError("camera_filter", "needs the cameras of queries and gallery; give both, or turn it off")
    scores = scores_of(query_features, gallery_features, metric, device=device, rerank=rerank, search=search)
    query, gallery = Labels(query_ids, query_cams), Labels(gallery_ids, gallery_cams)
    return evaluate_scores(scores, query, gallery, ap=ap, max_rank=max_rank, block=block)


def evaluate_scores(
    score: BlockScores,
    query: Labels,
    gallery: Labels,
    *,
    ap: AveragePrecision = "rectangular",
    max_rank: int = 50,
    block: int | None = None,
) -> Evaluation:
    """Compute the metrics of rankings from scores of any source.

    Args:
        score: scores of shape ``(Q, G)``. For a slice of the queries, a call returns finite scores ``(B, G)`` in a
            tensor that this function may overwrite.
        query, gallery: labels of the queries and of the gallery; without cameras, there is no camera filter.
        ap, max_rank, block: see :func:`evaluate`, which also describes the result and the errors.
    """
    _require(ap, max_rank, block)
    num_queries, num_gallery = score.shape
    query, gallery = comparable(query, gallery, score.shape)
    same_identity = SameIdentity(gallery.ids)
    junk = np.flatnonzero(gallery.ids == JUNK)
    average_precisions, inverse_penalties = np.full((2, num_queries), np.nan)
    first_ranks = np.full(num_queries, max_rank)  # max_rank: beyond the CMC curve
    num_filtered = 0
    matched: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # rows of queries, ranks and columns of matches
    for chunk in blocks(num_queries, num_gallery, block):
        rows, columns = same_identity(query.ids[chunk])
        valid = usable(query[chunk][rows], gallery[columns])  # (P,)
        count = chunk.stop - chunk.start
        images, matches = (np.bincount(each, minlength=count) for each in (rows, rows[valid]))  # (B,)
        num_filtered += int(((images > 0) & (matches == 0)).sum())
        if matches.any():
            ranks = _ranks(score, chunk, (rows[valid], columns[valid]), (rows[~valid], columns[~valid]), junk)
            order = np.lexsort((ranks, rows[valid]))
            ranks = ranks[order]
            matched.append((chunk.start + rows[valid], ranks + 1, columns[valid][order]))
            valid = chunk.start + np.flatnonzero(matches)
            measured = _measure(ranks, matches[matches > 0], ap)
            average_precisions[valid], inverse_penalties[valid], first_ranks[valid] = measured
    num_valid = int(np.isfinite(average_precisions).sum())
    num_absent = num_queries - num_valid - num_filtered
    if not num_valid:
        raise InputError(_no_match(num_absent, num_filtered, query.worn))
    divisor = num_valid if ap == "rectangular" else num_queries
    hits = np.bincount(first_ranks, minlength=max_rank)[:max_rank]  # queries per rank of their first match
    rows, ranks, columns = map(np.concatenate, zip(*matched, strict=True))
    return Evaluation(
        mAP=float(np.nansum(average_precisions) / divisor),
        mINP=float(np.nansum(inverse_penalties) / divisor),
        cmc=np.cumsum(hits) / divisor,
        ap=average_precisions,
        num_valid=num_valid,
        num_absent=num_absent,
        num_filtered=num_filtered,
        identities=query.ids,
        cameras=query.cameras,
        matches=Matches(rows, ranks, None if gallery.cameras is None else gallery.cameras[columns]),
    )


def _ranks(score: BlockScores, chunk: slice, matches: Pairs, filtered: Pairs, junk: np.ndarray) -> np.ndarray:
    """Return the ranks ``(P,)`` (from 0) of all P matches of a slice of the queries.

    Args:
        chunk: the slice of the queries.
        matches: query rows (ascending) and gallery columns of the matches.
        filtered: query rows and gallery columns of the images that the camera filter leaves out.
        junk: gallery columns of the junk images, which no ranking contains.
    """
    exact = score if isinstance(score, Scorer) else None  # count_ahead applies the scale, which is faster
    scores = exact.unscaled(chunk) if exact else score(chunk)  # (B, G)
    scores[:, junk] = -torch.inf
    scores[filtered] = -torch.inf
    if not exact:
        rank_missing_last(scores, *matches)
    return count_ahead(scores, *matches, exact.scale if exact else None)


def _require(ap: str, max_rank: int, block: int | None) -> None:
    if ap not in ("rectangular", "trapezoidal"):
        raise InputError(f"ap {ap!r}: unknown; use rectangular or trapezoidal")
    if max_rank < 1 or (block is not None and block < 1):
        raise InputError(f"max_rank = {max_rank} and block = {block} must be at least 1")


def ranking_of(score: BlockScores, query: Labels, gallery: Labels, row: int) -> np.ndarray:
    """Return the gallery columns for one query in the order of its ranking, without images that the filters leave out.

    Args:
        query, gallery: labels from :func:`~lreid.utils.identities.comparable`.
        row: row of the query.
    """
    scores = score(slice(row, row + 1))[0].cpu().numpy()  # (G,)
    columns = np.flatnonzero(usable(query[row : row + 1], gallery))
    return columns[np.argsort(-scores[columns], kind="stable")]


def _measure(ranks: np.ndarray, matches: np.ndarray, ap: AveragePrecision) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute each query's AP, INP and rank of the first match from the ranks of all its matches.

    Args:
        ranks: ``(P,)`` ranks from 0, query after query, ascending for each query.
        matches: ``(V,)`` number of matches of each query, above 0; their sum is P.
        ap: see :func:`evaluate`.
    """
    start = np.cumsum(matches) - matches
    ahead = np.arange(len(ranks)) - np.repeat(start, matches)  # matches ahead of this one
    precision = (ahead + 1) / (ranks + 1)
    if ap == "trapezoidal":
        precision = (precision + np.where(ranks == 0, 1.0, ahead / np.maximum(ranks, 1))) / 2
    last = ranks[start + matches - 1]
    return np.add.reduceat(precision, start) / matches, matches / (last + 1), ranks[start]


def _no_match(num_absent: int, num_filtered: int, worn: Outfits) -> str:
    if not num_filtered:
        return f"no query has a match: not one identity of the {num_absent} queries is in the gallery"
    if worn != "both":
        return f"no query has a match in the {worn} outfit by another camera; search both"
    absent = f" ({num_absent} more queries have an identity that is not there at all)" if num_absent else ""
    return (
        f"no query has a match: the camera filter removed them all, the identities of {num_filtered} queries "
        f"are in the gallery only under the query's own camera{absent}; set camera_filter=False or give "
        "queries and gallery different cameras"
    )
