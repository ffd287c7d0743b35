"""Open-set search: tell enrolled people from impostors by a threshold on the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lreid.errors import InputError
from lreid.identities import JUNK, as_all_labels, same
from lreid.retrieval.arrays import as_comparable, unit_rows
from lreid.retrieval.index import IndexScores, Search
from lreid.retrieval.scores import BlockScores, Cosines, blocks


@dataclass(frozen=True)
class OpenSetRate:
    """What a search finds if it may accept this share of impostors.

    Attributes:
        false_accept_rate: the allowed share of impostors, in [0, 1].
        threshold: cosine similarity from which a query is accepted.
        true_positive_rate: share of the known queries whose best image is of their identity and reaches the
            threshold.
    """

    false_accept_rate: float
    threshold: float
    true_positive_rate: float


def threshold_for(impostor_scores: np.ndarray, false_accept_rate: float) -> float:
    """The lowest threshold that at most the allowed share of impostors reaches.

    With fewer than 1 / rate impostors not one may pass, so the threshold is just above the best of them.

    Args:
        impostor_scores: ``(S,)`` best scores of queries whose identity is not in the gallery.
        false_accept_rate: in [0, 1).

    Raises:
        InputError: no impostors, or a rate outside [0, 1).
    """
    if not 0 <= false_accept_rate < 1:
        raise InputError(f"false-accept rate {false_accept_rate}: must be at least 0 and below 1")
    if len(impostor_scores) == 0:
        raise InputError("a threshold needs impostors: queries whose identity is one of several in the gallery")
    descending = np.sort(np.asarray(impostor_scores, dtype=np.float32))[::-1]
    allowed = int(false_accept_rate * len(descending) + 1e-9)
    return float(np.nextafter(descending[allowed], np.float32(np.inf)))


def pair_scores(
    query_features: Any,
    gallery_features: Any,
    query_ids: Any,
    gallery_ids: Any,
    query_cams: Any = None,
    gallery_cams: Any = None,
    *,
    camera_filter: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Cosine similarities of all pairs of a query and a gallery image: of the same identity, and of two.

    They tell how two images are compared when nothing else is known (verification). Arguments are those of
    :func:`open_set_rates`; the camera filter leaves out pairs of one identity by one camera.

    Returns:
        ``(S,)`` and ``(N,)`` float32, in no order that means anything.

    Raises:
        InputError: unusable input.
    """
    queries, gallery = as_comparable(query_features, gallery_features, None)  # (Q, D), (G, D)
    score = Cosines(unit_rows(queries, "query features"), unit_rows(gallery, "gallery features"))
    query_ids, gallery_ids, query_cams, gallery_cams = as_all_labels(
        query_ids, gallery_ids, query_cams, gallery_cams, score.shape, camera_filter=camera_filter
    )
    of_one, of_two = [], []
    for here in blocks(*score.shape):
        scores = score(here).cpu().numpy()  # (B, G)
        own, others = _own_and_others(here, query_ids, gallery_ids, query_cams, gallery_cams)
        of_one.append(scores[own])
        of_two.append(scores[others])
    return np.concatenate(of_one), np.concatenate(of_two)


def _own_and_others(
    here: slice, query_ids: np.ndarray, gallery_ids: np.ndarray, query_cams: Any, gallery_cams: Any
) -> tuple[np.ndarray, np.ndarray]:
    """``(B, G)`` bool: gallery images of each query's identity, and those of others. Junk, or unknown, is of neither.

    The cameras, unless they are None, leave images of the query's identity and camera out.
    """
    own = same(query_ids[here, None], gallery_ids)
    others = (query_ids[here, None] != JUNK) & (gallery_ids != JUNK) & ~own
    if query_cams is not None:
        own &= ~same(query_cams[here, None], gallery_cams)
    return own, others


def open_set_rates(
    query_features: Any,
    gallery_features: Any,
    query_ids: Any,
    gallery_ids: Any,
    query_cams: Any = None,
    gallery_cams: Any = None,
    *,
    camera_filter: bool = True,
    false_accept_rates: Sequence[float] = (0.01, 0.001),
    device: torch.device | str | None = None,
    search: Search | None = None,
) -> list[OpenSetRate]:
    """True-positive rates of open-set search (detection and identification rate, Phillips et al., 2011).

    Every query plays two parts. As an impostor it is searched in the gallery without the images of its identity:
    its best score is what a false accept would rest on. As itself it is searched in the gallery that
    :func:`lreid.retrieval.evaluate` ranks, if a match is left there. Compared by cosine similarity.

    Args:
        query_features: ``(Q, D)`` floats, array or tensor.
        gallery_features: ``(G, D)`` likewise.
        query_ids, gallery_ids: ``(Q,)`` and ``(G,)``, integers or text; queries and gallery images whose identity is
            missing or -1 are left out: who is on them may be enrolled or not.
        query_cams, gallery_cams: ``(Q,)`` and ``(G,)`` likewise; not needed without the camera filter.
        camera_filter: leave out images of the query's identity and camera.
        false_accept_rates: in [0, 1).
        device: where to compute; ``None`` is where the gallery features are.
        search: of :func:`lreid.retrieval.evaluate`, by cosine similarity.

    Raises:
        InputError: unusable input, no query with a match, or no image of another identity in the gallery.
    """
    queries, gallery = as_comparable(query_features, gallery_features, device)  # (Q, D), (G, D)
    queries, gallery = unit_rows(queries, "query features"), unit_rows(gallery, "gallery features")
    exact = Cosines(queries, gallery)
    return rates_of_scores(
        IndexScores(search, queries, len(gallery), exact) if search else exact,
        query_ids,
        gallery_ids,
        query_cams,
        gallery_cams,
        camera_filter=camera_filter,
        false_accept_rates=false_accept_rates,
    )


def rates_of_scores(
    score: BlockScores,
    query_ids: Any,
    gallery_ids: Any,
    query_cams: Any = None,
    gallery_cams: Any = None,
    *,
    camera_filter: bool = True,
    false_accept_rates: Sequence[float] = (0.01, 0.001),
) -> list[OpenSetRate]:
    """Rates of scores that come from anywhere. Arguments and result are those of :func:`open_set_rates`.

    Args:
        score: called with a slice of the queries, gives their ``(B, G)`` cosine similarities; ``score.shape`` is
            ``(Q, G)``.
    """
    num_queries, num_gallery = score.shape
    query_ids, gallery_ids, query_cams, gallery_cams = as_all_labels(
        query_ids, gallery_ids, query_cams, gallery_cams, score.shape, camera_filter=camera_filter
    )
    own = np.full(num_queries, -np.inf, dtype=np.float32)  # best score among the query's identity
    others = np.full(num_queries, -np.inf, dtype=np.float32)  # best score among all other identities
    for here in blocks(num_queries, num_gallery):
        scores = score(here)  # (B, G)
        wanted_of = _own_and_others(here, query_ids, gallery_ids, query_cams, gallery_cams)
        for best, wanted in zip((own, others), wanted_of, strict=True):
            masked = scores.masked_fill(torch.from_numpy(~wanted).to(scores.device), -torch.inf)
            best[here] = masked.amax(1).cpu().numpy()

    known = np.isfinite(own)
    if not known.any():
        raise InputError("open-set rates need queries with a match in the gallery; not one has one")
    impostors = others[np.isfinite(others)]
    rates = []
    for rate in false_accept_rates:
        threshold = threshold_for(impostors, rate)
        found = (own[known] > others[known]) & (own[known] >= threshold)
        rates.append(OpenSetRate(rate, threshold, float(found.mean())))
    return rates
