"""Retrieval metrics at several gallery sizes, because lower metrics in a larger gallery can look like forgetting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from lreid.errors import InputError, require
from lreid.retrieval.matches import SameIdentity
from lreid.retrieval.open_set import open_set_rates
from lreid.retrieval.ranking import AveragePrecision, evaluate_scores
from lreid.retrieval.scores import Metric, cosines_of, scores_of
from lreid.utils.identities import JUNK, Labels, comparable, usable


class GrowthPoint(NamedTuple):
    """Metrics at one gallery size, each as its mean and standard deviation over random draws of the gallery.

    Attributes:
        identities: number of identities in the gallery that have queries (enrolled identities).
        images: mean number of gallery images.
        mAP, rank1: metrics in [0, 1] of the queries of enrolled identities.
        threshold: cosine similarity that only the allowed share of impostors (FPIR) reaches.
        true_positive_rate: share of the queries of enrolled identities whose best-scoring image is a match and reaches
            the threshold (TPIR).
    """

    identities: int
    images: float
    mAP: tuple[float, float]
    rank1: tuple[float, float]
    threshold: tuple[float, float]
    true_positive_rate: tuple[float, float]


def gallery_growth(
    features: tuple[Any, Any],
    query: Labels,
    gallery: Labels,
    *,
    metric: Metric = "cosine",
    ap: AveragePrecision = "rectangular",
    false_accept_rate: float = 0.01,
    draws: int = 5,
    device: torch.device | None = None,
) -> list[GrowthPoint]:
    """Evaluate random parts of a gallery with all, a half, a quarter, an eighth and a sixteenth of its identities.

    Each part contains all images of the drawn identities, and the same share of the images without a query. With more
    enrolled identities, the accuracy of every model falls and its threshold for a fixed FPIR rises (Grother et al.,
    NIST IR 8271, 2019; distractors: Zheng et al., ICCV 2015). Therefore compare the accuracy of models only at the same
    gallery size.

    Args:
        features: features ``(Q, D)`` of the queries and ``(G, D)`` of the gallery.
        metric, ap, device: as in :func:`lreid.retrieval.evaluate`.
        false_accept_rate: false positive identification rate (FPIR) for which the threshold is set, in [0, 1). Every
            query is also searched as an impostor, in the gallery without the images of its identity
            (:func:`lreid.retrieval.open_set_rates`).
        draws: number of random parts of each size. Every call draws the same parts.

    Returns:
        One point per size, in ascending order; sizes below 2 identities are left out.

    Raises:
        InputError: the labels are invalid, or fewer than 2 identities have a query with a match.
    """
    require(draws >= 1, "draws", draws, "1 or more")
    query, gallery = comparable(query, gallery, (len(features[0]), len(features[1])))
    matched = _matched(query, gallery)
    points = []
    for size in sorted({max(2, len(matched) >> halvings) for halvings in range(5)}):
        measured = []
        for draw in range(draws if size < len(matched) else 1):
            query_mask, part = _draw(query.ids, gallery.ids, matched, size, np.random.default_rng(draw))
            images, enrolled = features[1][part], gallery[part]
            scores = scores_of(features[0][query_mask], images, metric, device=device)
            result = evaluate_scores(scores, query[query_mask], enrolled, ap=ap)
            cosines = cosines_of(features[0], images, device=device)
            (rate,) = open_set_rates(cosines, query, enrolled, false_accept_rates=[false_accept_rate])
            measured.append((len(part), result.mAP, result.cmc[0], rate.threshold, rate.true_positive_rate))
        (count, _), *figures = map(_mean_and_spread, zip(*measured, strict=True))
        points.append(GrowthPoint(size, count, *figures))
    return points


def _matched(query: Labels, gallery: Labels) -> np.ndarray:
    """Return the identities that have a query with a match in the gallery, in ascending order."""
    rows, columns = SameIdentity(gallery.ids)(query.ids)
    matched = np.unique(query.ids[rows[usable(query[rows], gallery[columns])]])
    if len(matched) < 2:
        raise InputError(f"gallery growth: {len(matched)} identities have a match; 2 or more are needed")
    return matched


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Compute the mean and the standard deviation (divisor n - 1) of values; a single value has deviation 0."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _draw(
    query_ids: np.ndarray, gallery_ids: np.ndarray, matched: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``size`` identities; return a mask (Q,) of their queries, and the ascending gallery rows of the part."""
    enrolled = rng.permutation(matched)[:size]
    others = rng.permutation(np.flatnonzero(~np.isin(gallery_ids, [*matched, JUNK])))
    others = others[: round(len(others) * size / len(matched))]
    part = np.sort(np.concatenate([np.flatnonzero(np.isin(gallery_ids, enrolled)), others]))
    return np.isin(query_ids, enrolled), part
