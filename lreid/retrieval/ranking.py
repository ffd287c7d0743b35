"""Exact CMC, AP, mAP and mINP over the full ranking, at about the price of one matrix product.

No row is put in order and no query × gallery matrix is held. A block of queries is scored against the gallery;
what the measures need is the rank of every match, and that is the number of gallery images ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.retrieval.arrays import as_features, as_labels, inverse_norms, squared_norms

JUNK = -1  # gallery identity that never counts
BLOCK_SCORES = 2**24  # scores held at a time: 64 MB in float32

Metric = Literal["cosine", "euclidean", "sqeuclidean"]
AveragePrecision = Literal["rectangular", "trapezoidal"]


@dataclass(frozen=True)
class Evaluation:
    """How well a gallery was searched. All figures are fractions in [0, 1].

    Attributes:
        mAP: mean average precision.
        mINP: mean inverse negative penalty: matches / rank of the last one (Ye et al., 2021).
        cmc: ``(max_rank,)`` float64; ``cmc[k - 1]`` is Rank-k, the share of queries with a match in the first k.
        ap: ``(Q,)`` float64, average precision of each query; NaN where the query has no match.
        num_valid: queries with at least one match.
        num_absent: queries without a match because the gallery holds no image of their identity.
        num_filtered: queries without a match because the camera filter removed every one.
    """

    mAP: float
    mINP: float
    cmc: np.ndarray
    ap: np.ndarray
    num_valid: int
    num_absent: int
    num_filtered: int

    @property
    def warning(self) -> str:
        """One line on the queries without a match and why they have none; empty if all have one."""
        reasons = []
        if self.num_absent:
            reasons.append(f"{self.num_absent} whose identity is not in the gallery")
        if self.num_filtered:
            reasons.append(
                f"{self.num_filtered} whose identity is there only under the query's own camera "
                "(EVAL.CAMERA_FILTER False keeps those)"
            )
        if not reasons:
            return ""
        return f"{len(self.ap) - self.num_valid} of {len(self.ap)} queries have no match: " + ", ".join(reasons)


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
) -> Evaluation:
    """Ranks the gallery for every query and scores the rankings.

    Left out of a query's ranking: gallery images of identity -1 (junk) and, with ``camera_filter``, those of the
    query's identity *and* camera. Everything else stays, so distractors count against the query.

    Images with equal scores keep the order of the gallery. Gallery rows that are equal bit for bit always have
    equal scores: a matrix product alone does not promise that, so they are scored once. Scores of different rows
    carry the rounding of the product, in the features' precision, whose last bit may change with block and device.

    Args:
        query_features: ``(Q, D)`` floats, array or tensor. float64 is computed in float64, the rest in float32.
        gallery_features: ``(G, D)`` likewise.
        query_ids, gallery_ids: ``(Q,)`` and ``(G,)`` integers.
        query_cams, gallery_cams: ``(Q,)`` and ``(G,)`` integers; not needed without the camera filter.
        metric: ``cosine`` compares directions; a zero vector has cosine 0 with everything. ``euclidean`` and
            ``sqeuclidean`` give the same ranking.
        ap: ``rectangular`` averages the precision at the matches, and the means go over the queries with a match,
            as reid-strong-baseline and torchreid have it. ``trapezoidal`` is the AP of the first Market-1501 code:
            at the i-th match (from 0) of rank r (from 0) the mean of (i + 1) / (r + 1) and i / r, the latter 1 at
            r = 0; means go over *all* queries, as DwoPP's code has it.
        camera_filter: leave out images of the query's identity and camera.
        max_rank: length of the CMC curve.
        block: queries scored at a time; ``None`` keeps a block near 64 MB.
        device: where to compute; ``None`` is where the gallery features are.

    Raises:
        InputError: unusable input, or no query with a match; the message says which filter took them.
    """
    if metric not in ("cosine", "euclidean", "sqeuclidean"):
        raise InputError(f"metric {metric!r}: unknown; use cosine, euclidean or sqeuclidean")
    if ap not in ("rectangular", "trapezoidal"):
        raise InputError(f"ap {ap!r}: unknown; use rectangular or trapezoidal")
    gallery = as_features(gallery_features, "gallery features", device)  # (G, D)
    queries = as_features(query_features, "query features", gallery.device)  # (Q, D)
    if queries.shape[1] != gallery.shape[1]:
        raise InputError(
            f"query features have {queries.shape[1]} numbers a row, gallery features {gallery.shape[1]}; "
            "extract both with the same model"
        )
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    queries, gallery = queries.to(dtype), gallery.to(dtype)
    query_ids = as_labels(query_ids, "query identities", len(queries))
    gallery_ids = as_labels(gallery_ids, "gallery identities", len(gallery))
    if camera_filter:
        if query_cams is None or gallery_cams is None:
            raise InputError("the camera filter needs cameras; give them or set EVAL.CAMERA_FILTER False")
        query_cams = as_labels(query_cams, "query cameras", len(queries))
        gallery_cams = as_labels(gallery_cams, "gallery cameras", len(gallery))
    squared_norms(queries, "query features")

    score = _Scorer(gallery, metric)
    find = _SameIdentity(gallery_ids)
    junk = np.flatnonzero(gallery_ids == JUNK)
    num_queries = len(queries)
    block = block or max(1, BLOCK_SCORES // len(gallery))
    precisions = np.full(num_queries, np.nan)  # AP by query
    penalties = np.full(num_queries, np.nan)  # INP by query
    first_hits = np.full(num_queries, np.iinfo(np.int64).max)
    num_filtered = 0
    with ThreadPoolExecutor(torch.get_num_threads()) as pool, _full_precision():
        count_ahead = partial(_count_ahead_by_sorting, pool) if gallery.device.type == "cpu" else _count_ahead
        for start in range(0, num_queries, block):
            here = np.arange(start, min(start + block, num_queries))
            rows, columns = find(query_ids[here])
            removed = np.zeros(len(rows), dtype=bool)
            if camera_filter:
                removed = query_cams[here][rows] == gallery_cams[columns]
            matches = np.bincount(rows[~removed], minlength=len(here))
            num_filtered += int(((matches == 0) & (np.bincount(rows, minlength=len(here)) > 0)).sum())
            if not matches.any():
                continue
            scores = score(queries[start : start + block])  # (B, G)
            scores[:, junk] = -torch.inf
            scores[rows[removed], columns[removed]] = -torch.inf
            ahead = count_ahead(scores, rows[~removed], columns[~removed])
            here, matches = here[matches > 0], matches[matches > 0]
            precisions[here], penalties[here], first_hits[here] = _measure(ahead, matches, ap)

    num_valid = int(np.isfinite(precisions).sum())
    num_absent = num_queries - num_valid - num_filtered
    if not num_valid:
        raise InputError(_no_match(num_absent, num_filtered))
    divisor = num_valid if ap == "rectangular" else num_queries
    return Evaluation(
        mAP=float(np.nansum(precisions) / divisor),
        mINP=float(np.nansum(penalties) / divisor),
        cmc=np.cumsum(np.bincount(first_hits[first_hits < max_rank], minlength=max_rank)) / divisor,
        ap=precisions,
        num_valid=num_valid,
        num_absent=num_absent,
        num_filtered=num_filtered,
    )


class _Scorer:
    """Scores of queries against one gallery: the higher, the nearer. Equal gallery rows score equal."""

    def __init__(self, gallery: Tensor, metric: Metric):
        self.gallery, self.metric = gallery, metric
        squares = squared_norms(gallery, "gallery features")
        # For a query q, cosine ranks like q·g / |g| and the distance like q·g - |g|² / 2.
        self.term = inverse_norms(squares) if metric == "cosine" else squares / 2  # (G,)
        self.repeats, self.originals = _repeated_rows(gallery)

    def __call__(self, queries: Tensor) -> Tensor:
        scores = queries @ self.gallery.T  # (B, G)
        scores = scores.mul_(self.term) if self.metric == "cosine" else scores.sub_(self.term)
        if len(self.repeats):
            scores[:, self.repeats] = scores[:, self.originals]
        return scores


def _repeated_rows(features: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows equal to an earlier one, and the first row each of them equals."""
    rows = features.cpu().numpy()
    seen: dict[int, int] = {}
    pairs = []
    for index, row in enumerate(rows):
        first = seen.setdefault(hash(row.tobytes()), index)
        if first != index and np.array_equal(rows[first], row):
            pairs.append((index, first))
    repeats, originals = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return repeats, originals


class _SameIdentity:
    """Finds the gallery images of each query's identity."""

    def __init__(self, gallery_ids: np.ndarray):
        self.order = np.argsort(gallery_ids, kind="stable")
        self.ids = gallery_ids[self.order]

    def __call__(self, query_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Query rows, ascending, and gallery columns of all pairs of one identity; junk pairs with nothing."""
        start = np.searchsorted(self.ids, query_ids, side="left")
        count = np.searchsorted(self.ids, query_ids, side="right") - start
        count[query_ids == JUNK] = 0
        rows = np.repeat(np.arange(len(query_ids)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self.order[np.repeat(start, count) + within]


def _count_ahead_by_sorting(
    pool: ThreadPoolExecutor, scores: Tensor, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """What :func:`_count_ahead` gives, fast on a CPU: numpy sorts bare values at some nanoseconds each.

    Ascending values tell how many are above and how many equal a match; only among equals positions are looked at.
    """
    values = scores.numpy()  # (B, G)
    bounds = np.searchsorted(rows, np.arange(len(values) + 1))
    ahead = np.empty(len(rows), dtype=np.int64)

    def count(chunk: np.ndarray) -> None:
        ascending = values[chunk]  # a copy, for scores keep their places
        ascending.sort(axis=1)
        for row, ordered in zip(chunk, ascending, strict=True):
            pairs = slice(bounds[row], bounds[row + 1])
            targets = values[row, columns[pairs]]
            above = np.searchsorted(ordered, targets, side="right")
            counts = len(ordered) - above
            for tied in np.flatnonzero(above - np.searchsorted(ordered, targets) > 1):
                counts[tied] += np.count_nonzero(values[row, : columns[pairs][tied]] == targets[tied])
            ahead[pairs] = counts

    wanted = np.flatnonzero(np.diff(bounds))
    list(pool.map(count, np.array_split(wanted, max(1, len(wanted) // 16))))
    return ahead


def _count_ahead(scores: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Ranks, from 0, of the matches ``scores[rows, columns]``: how many of their row stand ahead of each.

    Ahead are higher scores, and equal ones that come earlier in the gallery.
    """
    places = torch.arange(scores.shape[1], device=scores.device)  # (G,)
    rows, columns = (torch.from_numpy(index).to(scores.device) for index in (rows, columns))
    counts = []
    for row, column in zip(*(index.split(max(1, len(scores) // 4)) for index in (rows, columns)), strict=True):
        others = scores[row]  # (P, G)
        target = scores[row, column][:, None]  # (P, 1)
        earlier = (others == target) & (places < column[:, None])
        counts.append(((others > target) | earlier).sum(1))
    return torch.cat(counts).cpu().numpy()


def _measure(
    ahead: np.ndarray, matches: np.ndarray, ap: AveragePrecision
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """AP, INP and rank of the first match, of queries with ``matches`` matches each, ``ahead`` query by query."""
    start = np.cumsum(matches) - matches
    ranks = ahead[np.lexsort((ahead, np.repeat(np.arange(len(matches)), matches)))]
    hits = np.arange(len(ranks)) - np.repeat(start, matches)  # matches ahead of this one
    precision = (hits + 1) / (ranks + 1)
    if ap == "trapezoidal":
        precision = (precision + np.where(ranks == 0, 1.0, hits / np.maximum(ranks, 1))) / 2
    last = ranks[start + matches - 1]
    return np.add.reduceat(precision, start) / matches, matches / (last + 1), ranks[start]


def _no_match(num_absent: int, num_filtered: int) -> str:
    if not num_filtered:
        return f"no query has a match: none of the {num_absent} queries' identities is in the gallery"
    absent = f", and {num_absent} have no image there at all" if num_absent else ""
    return (
        f"no query has a match: the camera filter removed every one, {num_filtered} queries' identities are in the "
        f"gallery only under the query's own camera{absent}; set EVAL.CAMERA_FILTER False, or give query and "
        "gallery images different cameras"
    )


@contextmanager
def _full_precision() -> Iterator[None]:
    """Keeps matrix products from being rounded to TF32 or bfloat16, which would reorder rankings."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
