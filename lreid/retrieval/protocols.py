"""Evaluation protocols besides :func:`lreid.retrieval.evaluate`: those of single benchmarks, and open-set search.

In open-set search, a threshold on the score distinguishes enrolled people from impostors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError, require
from lreid.retrieval.matches import SameIdentity
from lreid.retrieval.ranking import AveragePrecision, Evaluation, Matches, evaluate_scores
from lreid.retrieval.scores import BlockScores, blocks, rank_missing_last
from lreid.utils.identities import JUNK, UNKNOWN, Labels, as_names, comparable, same, usable

FALSE_ACCEPT_RATES = (0.01, 0.001)  # shares of impostors for which open-set search is reported


def evaluate_image_to_track(
    score: BlockScores, query: Labels, gallery: Labels, tracks: Any, **options: Any
) -> Evaluation:
    """Evaluate by the image-to-track protocol of VeRi-776 (Liu et al., 2016): tracks are ranked by their best image.

    Args:
        score: scores of the queries with the gallery images, see :func:`lreid.retrieval.scores_of`.
        query, gallery: labels of the queries and of the gallery; without cameras, there is no camera filter.
        tracks: ``(G,)`` integers or text, the track of each gallery image, neither missing nor -1. All images of a
            track must have the same identity and camera. Tracks with equal scores are ranked in the order of
            ``tracks``.
        options: ``ap``, ``max_rank`` and ``block`` of :func:`lreid.retrieval.evaluate`.

    Raises:
        InputError: :func:`lreid.retrieval.evaluate` raises an error, an image has no track, or a track has several
            identities or cameras.
    """
    gallery = Labels(
        as_names(gallery.ids, "gallery identities", score.shape[1]),
        None if gallery.cameras is None else as_names(gallery.cameras, "gallery cameras", score.shape[1]),
    )
    tracks = as_names(tracks, "gallery tracks", score.shape[1])
    if len(nowhere := np.flatnonzero(tracks.astype(str) == str(UNKNOWN))):
        raise InputError(f"gallery tracks: image {nowhere[0]} is in no track; number every track from 0 or name it")
    distinct, first, track_of = np.unique(tracks, return_index=True, return_inverse=True)
    for labels, name in ((gallery.ids, "identities"), (gallery.cameras, "cameras")):
        if labels is not None and len(mixed := np.flatnonzero(labels != labels[first][track_of])):
            raise InputError(f"track {tracks[mixed[0]]}: its images have several {name}; it must have one")
    best = _BestOfTrack(score, torch.from_numpy(track_of), len(distinct))
    return evaluate_scores(best, query, gallery[first], **options)


class _BestOfTrack:
    """Scores of tracks, each of which is the score of the track's best image."""

    def __init__(self, score: BlockScores, track_of: Tensor, num_tracks: int):
        self.score, self.track_of = score, track_of
        self.shape = score.shape[0], num_tracks

    def __call__(self, here: slice) -> Tensor:
        scores = self.score(here)  # (B, G)
        best = scores.new_full((len(scores), self.shape[1]), -torch.inf)  # (B, T)
        return best.scatter_reduce_(1, self.track_of.to(scores.device).expand_as(scores), scores, "amax")


def evaluate_single_shot(
    score: BlockScores,
    query: Labels,
    gallery: Labels,
    *,
    repeats: int = 10,
    seed: int = 0,
    ap: AveragePrecision = "rectangular",
    max_rank: int = 50,
    block: int | None = None,
) -> Evaluation:
    """Evaluate with one gallery image per identity, the original protocol of CUHK03 (Li et al., 2014).

    For each query, one image per identity is drawn at random from the gallery images that the filters leave. The CMC
    curve is the mean over several draws. AP, mAP and mINP are computed for the whole gallery, as in torchreid's code.

    Args:
        score, query, gallery: see :func:`evaluate_image_to_track`.
        repeats: number of random draws, 1 or more.
        seed: seed of the draws; in a draw, all queries get the same images of other identities.
        ap, max_rank, block: see :func:`lreid.retrieval.evaluate`, which raises the same errors.
    """
    if repeats < 1:
        raise InputError(f"repeats = {repeats}: must be at least 1")
    num_queries, num_gallery = score.shape
    query, gallery = comparable(query, gallery, score.shape)
    full_gallery = evaluate_scores(score, query, gallery, ap=ap, max_rank=max_rank, block=block)
    rng = np.random.default_rng(seed)
    lots = np.stack([rng.permutation(num_gallery) for _ in range(repeats)])  # (R, G): the lowest lot is drawn
    same_identity = SameIdentity(gallery.ids)
    counted = np.flatnonzero(gallery.ids != JUNK)
    hits = np.zeros(max_rank)
    for chunk in blocks(num_queries, num_gallery, block):
        rows, columns = same_identity(query.ids[chunk])
        valid = usable(query[chunk][rows], gallery[columns])
        rows, columns = rows[valid], columns[valid]
        block_scores = score(chunk)  # (B, G)
        rank_missing_last(block_scores, rows, columns)
        scores = block_scores.cpu().numpy()
        for lot in lots:
            queries, own_image = _lowest(rows, columns, lot)  # (V,) queries with a match, and the match drawn for each
            _, other_images = _lowest(gallery.ids[counted], counted, lot)  # (I,) one image per identity
            other_scores, own_score = scores[queries][:, other_images], scores[queries, own_image][:, None]
            ahead = (other_scores > own_score) | ((other_scores == own_score) & (other_images < own_image[:, None]))
            ahead &= gallery.ids[other_images] != query.ids[chunk][queries][:, None]
            ranks = ahead.sum(1)
            hits += np.bincount(ranks[ranks < max_rank], minlength=max_rank)
    divisor = num_queries if ap == "trapezoidal" else full_gallery.num_valid
    return replace(full_gallery, cmc=np.cumsum(hits) / repeats / divisor)


def _lowest(groups: np.ndarray, images: np.ndarray, lot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ``groups``, ascending, and for each group its image with the lowest number in ``lot``."""
    order = np.lexsort((lot[images], groups))
    distinct, first = np.unique(groups[order], return_index=True)
    return distinct, images[order][first]


def average_evaluations(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Average the evaluations of random splits, as usual for VIPeR, PRID, GRID, i-LIDS and VehicleID.

    mAP, mINP and CMC are means over the splits. The result contains the APs and matches of all queries of all splits,
    and the sums of the numbers of queries.

    Raises:
        InputError: there is no evaluation, or the CMC curves have different lengths.
    """
    if len({len(each.cmc) for each in evaluations}) != 1:
        raise InputError("average_evaluations: needs at least one evaluation, and the same max_rank in all")
    first = np.cumsum([0, *(len(each.ap) for each in evaluations)])
    cameras = [(each.cameras, each.matches.cameras) for each in evaluations if each.cameras is not None]
    query_cameras, match_cameras = map(np.concatenate, zip(*cameras, strict=True)) if cameras else (None, None)
    rows = [start + each.matches.queries for start, each in zip(first[:-1], evaluations, strict=True)]
    ranks = [each.matches.ranks for each in evaluations]
    return Evaluation(
        mAP=float(np.mean([each.mAP for each in evaluations])),
        mINP=float(np.mean([each.mINP for each in evaluations])),
        cmc=np.mean([each.cmc for each in evaluations], axis=0),
        ap=np.concatenate([each.ap for each in evaluations]),
        num_valid=sum(each.num_valid for each in evaluations),
        num_absent=sum(each.num_absent for each in evaluations),
        num_filtered=sum(each.num_filtered for each in evaluations),
        identities=np.concatenate([each.identities for each in evaluations]),
        cameras=query_cameras,
        matches=Matches(np.concatenate(rows), np.concatenate(ranks), match_cameras),
    )


def camera_pairs(evaluation: Evaluation, *, rank1: bool = False, fewest: int = 10) -> dict[str, float]:
    """Compute mAP or Rank-1 for each pair of a query's camera and a match's camera, in a gallery with all distractors.

    For the pair ``a → b``, matches in other cameras than b are left out of the ranking of each query of camera a. AP is
    rectangular.

    Args:
        rank1: whether to compute Rank-1 instead of mAP.
        fewest: minimum number of queries of a pair; pairs with fewer queries are left out.

    Returns:
        Fractions by pair; empty without cameras or with a single pair.
    """
    texts, precisions, firsts = evaluation.by_camera
    pairs, pair, counts = np.unique(texts, return_inverse=True, return_counts=True)
    means = np.bincount(pair, firsts if rank1 else precisions) / counts
    figures = {str(pairs[at]): float(means[at]) for at in np.flatnonzero(counts >= fewest)}
    return figures if len(figures) > 1 else {}


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
    require(0 <= false_accept_rate < 1, "false_accept_rate", false_accept_rate, "at least 0 and below 1")
    if len(impostor_scores) == 0:
        raise InputError("a threshold needs impostors: queries whose identity is one of several in the gallery")
    descending = np.sort(np.asarray(impostor_scores, dtype=np.float32))[::-1]
    allowed = min(int(false_accept_rate * len(descending) + 1e-9), len(descending) - 1)
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
