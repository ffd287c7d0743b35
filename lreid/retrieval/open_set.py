"""Open-set search, in which a threshold on the score distinguishes enrolled people from impostors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lreid.errors import InputError, require
from lreid.retrieval.scores import BlockScores, blocks
from lreid.utils.identities import JUNK, Labels, comparable, same, usable

FALSE_ACCEPT_RATES = (0.01, 0.001)


@dataclass(frozen=True)
class OpenSetRate:
    """The true positive identification rate at one false accept rate.

    Attributes:
        false_accept_rate: maximum share of impostors that reach the threshold, in [0, 1].
        threshold: lowest cosine similarity at which a query is accepted.
        true_positive_rate: share of the enrolled queries whose best-scoring image is a match and reaches the threshold.
    """

    false_accept_rate: float
    threshold: float
    true_positive_rate: float


def threshold_for(impostor_scores: np.ndarray, false_accept_rate: float) -> float:
    """Return the lowest threshold that at most the allowed share of impostors reaches.

    With fewer than ``1 / false_accept_rate`` impostors, none may reach the threshold, so the threshold is just above
    the best impostor score.

    Args:
        impostor_scores: ``(S,)`` best scores of queries whose identities are not in the gallery.
        false_accept_rate: allowed share of impostors, in [0, 1).

    Raises:
        InputError: there are no impostors, or the rate is outside [0, 1).
    """
    number = isinstance(false_accept_rate, (int, float, np.number)) and not isinstance(false_accept_rate, bool)
    require(number and 0 <= false_accept_rate < 1, "false_accept_rate", false_accept_rate, "at least 0 and below 1")
    if len(impostor_scores) == 0:
        raise InputError("a threshold needs impostors: queries whose identity is one of several in the gallery")
    descending = np.sort(np.asarray(impostor_scores, dtype=np.float32))[::-1]
    allowed = int(false_accept_rate * len(descending) + 1e-9)
    return float(np.nextafter(descending[allowed], np.float32(np.inf)))


def pair_scores(score: BlockScores, query: Labels, gallery: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosine similarities of all genuine and all impostor pairs of a query and a gallery image.

    Verification compares two images, so it needs the scores of such pairs. The arguments are those of
    :func:`open_set_rates`. With cameras, pairs with the same identity and camera are left out.

    Returns:
        Scores of the S genuine pairs ``(S,)`` and of the N impostor pairs ``(N,)``, both float32 in arbitrary order.
    """
    query, gallery = comparable(query, gallery, score.shape)
    of_one, of_two = [], []
    for chunk in blocks(*score.shape):
        scores = score(chunk).cpu().numpy()  # (B, G)
        own, others = _own_and_others(query[chunk], gallery)
        of_one.append(scores[own])
        of_two.append(scores[others])
    return np.concatenate(of_one), np.concatenate(of_two)


def _own_and_others(query: Labels, gallery: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return masks ``(B, G)`` of the gallery images of each query's identity, and of other identities, without junk."""
    query = query[:, None]
    ranked, own = usable(query, gallery), same(query.ids, gallery.ids)
    return ranked & own, ranked & ~own & (query.ids != JUNK)


def best_scores(score: BlockScores, query: Labels, gallery: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return each query's best score among images of its own identity, and among images of other identities.

    Args:
        score, query, gallery: as in :func:`open_set_rates`.

    Returns:
        Best scores for the query's own and for other identities, each ``(Q,)`` float32; -inf if the gallery has no such
        image.
    """
    query, gallery = comparable(query, gallery, score.shape)
    own, others = np.full((2, len(query)), -np.inf, dtype=np.float32)
    for chunk in blocks(*score.shape):
        scores = score(chunk)  # (B, G)
        for best, usable_images in zip((own, others), _own_and_others(query[chunk], gallery), strict=True):
            masked = scores.masked_fill(torch.from_numpy(~usable_images).to(scores.device), -torch.inf)
            best[chunk] = masked.amax(1).cpu().numpy()
    return own, others


def open_set_rates(
    score: BlockScores, query: Labels, gallery: Labels, *, false_accept_rates: Sequence[float] = FALSE_ACCEPT_RATES
) -> list[OpenSetRate]:
    """Compute true positive rates of open-set search (detection and identification rate, Phillips et al., 2011).

    Every query is searched as an impostor, in the gallery without the images of its own identity. The best score of
    such a search is the query's impostor score. A query with a match is also searched as a genuine query, in the
    gallery of :func:`lreid.retrieval.evaluate`.

    Args:
        score: function from a slice of the queries to their ``(B, G)`` cosine similarities, see
            :func:`lreid.retrieval.cosines_of`; its attribute ``shape`` is ``(Q, G)``.
        query, gallery: labels of the queries and of the gallery; without cameras, there is no camera filter. Images
            whose identity is missing or -1 are left out, because they may show an enrolled person.
        false_accept_rates: shares of impostors that may reach the threshold, each in [0, 1).

    Raises:
        InputError: the labels are invalid, no query has a match, or the gallery has only one identity.
    """
    own, others = best_scores(score, query, gallery)
    enrolled = np.isfinite(own)
    if not enrolled.any():
        raise InputError("open-set rates need queries with a match in the gallery; none has one")
    impostors = others[np.isfinite(others)]
    rates = []
    for rate in false_accept_rates:
        threshold = threshold_for(impostors, rate)
        accepted = (own[enrolled] > others[enrolled]) & (own[enrolled] >= threshold)
        rates.append(OpenSetRate(rate, threshold, float(accepted.mean())))
    return rates
