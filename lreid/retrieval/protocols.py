"""Evaluation protocols of single benchmarks, in addition to :func:`lreid.retrieval.evaluate`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.retrieval.matches import SameIdentity
from lreid.retrieval.ranking import AveragePrecision, Evaluation, evaluate_scores
from lreid.retrieval.scores import BlockScores, blocks, rank_missing_last
from lreid.utils.identities import JUNK, UNKNOWN, Labels, as_names, comparable, usable


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

    mAP, mINP and CMC are means over the splits. The result contains the APs of all queries of all splits, and the sums
    of the numbers of queries.

    Raises:
        InputError: there is no evaluation, or the CMC curves have different lengths.
    """
    if len({len(each.cmc) for each in evaluations}) != 1:
        raise InputError("average_evaluations: needs at least one evaluation, and the same max_rank in all")
    return Evaluation(
        mAP=float(np.mean([each.mAP for each in evaluations])),
        mINP=float(np.mean([each.mINP for each in evaluations])),
        cmc=np.mean([each.cmc for each in evaluations], axis=0),
        ap=np.concatenate([each.ap for each in evaluations]),
        num_valid=sum(each.num_valid for each in evaluations),
        num_absent=sum(each.num_absent for each in evaluations),
        num_filtered=sum(each.num_filtered for each in evaluations),
    )
