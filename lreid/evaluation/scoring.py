"""Score one model on one test set: all figures, why queries have no match, and the hardest rankings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lreid.data.images import Images
from lreid.data.records import QueryGallery
from lreid.errors import InputError
from lreid.evaluation.protocol import evaluate_splits, filtered_by, searches_of, split_rows
from lreid.identities import JUNK, same
from lreid.results import MAX_RANK, figures_of
from lreid.retrieval import (
    Evaluation,
    FaissIndex,
    IndexCost,
    OpenSetRate,
    average_evaluations,
    cost_of,
    evaluate,
    open_set_rates,
)
from lreid.retrieval.arrays import as_comparable
from lreid.retrieval.index import FaissSearch
from lreid.retrieval.ranking import AveragePrecision
from lreid.retrieval.rerank import KReciprocal
from lreid.retrieval.scores import Metric, Scorer

FALSE_ACCEPT_RATES = (0.01, 0.001)


def score(
    test: QueryGallery,
    images: tuple[Images, Images],
    features: tuple[np.ndarray, np.ndarray],
    *,
    metric: Metric,
    ap: AveragePrecision,
    camera_filter: bool,
    rerank: KReciprocal | None = None,
    open_set: bool = True,
    index: FaissIndex | None = None,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Figures of a model on a test set.

    Args:
        test: the test set. Where it has splits, figures are means over them and counts are sums.
        images: of queries and gallery.
        features: (Q, D) and (G, D), of these images.
        metric, ap, camera_filter, rerank, device: of :func:`lreid.retrieval.evaluate`.
        index: search the gallery through it; None compares with every image.
        open_set: look for true-positive rates as well, which compare images by cosine similarity, whatever ``metric``
            is and whether tracks are ranked or not.

    Returns:
        Values for JSON, in per cent: :data:`lreid.results.METRICS`; the numbers of queries
        ``num_valid``, ``num_absent`` and ``num_filtered`` of :class:`lreid.retrieval.Evaluation`; and ``open_set``,
        a list of ``false_accept_rate``, ``threshold`` (a cosine similarity) and ``true_positive_rate``; empty where
        no query can serve as an impostor. With an index also ``index``: its name, ``depth``, and what
        :class:`lreid.retrieval.IndexCost` measures.

    Raises:
        InputError: no query has a match.
    """
    searches = searches_of(index, test, images, features[1], metric)
    result = average_evaluations(
        evaluate_splits(
            test,
            images,
            features,
            searches,
            metric=metric,
            ap=ap,
            camera_filter=camera_filter,
            rerank=rerank,
            max_rank=MAX_RANK,
            device=device,
        )
    )
    rates = []
    if open_set:
        cosine = searches if metric == "cosine" else searches_of(index, test, images, features[1], "cosine")
        rates = _open_set(test, images, features, cosine, camera_filter, device)
    told = told_figures(result, rates)
    if index:
        told["index"] = _cost(index, test, images, features, searches, metric)
    return told


def told_figures(result: Evaluation, rates: Sequence[Sequence[OpenSetRate]]) -> dict[str, Any]:
    """What :func:`score` tells of a ranking, and of the open-set rates of its splits."""
    return {
        **figures_of(result),
        **{count: getattr(result, count) for count in ("num_valid", "num_absent", "num_filtered")},
        "open_set": [
            {
                "false_accept_rate": 100 * rate,
                "threshold": float(np.mean([each.threshold for each in split_rates])),
                "true_positive_rate": 100 * float(np.mean([each.true_positive_rate for each in split_rates])),
            }
            for rate, *split_rates in zip(FALSE_ACCEPT_RATES, *rates, strict=False)
            if split_rates
        ],
    }


def notes_on(name: str, figures: dict[str, Any], queries: int, *, has_cameras: bool, itself: int = 0) -> list[str]:
    """What a reader must know of the figures of one test set, of :func:`lreid.evaluation.scoring.score`.

    Args:
        name: of the test set.
        figures: of :func:`score`.
        queries: their number.
        has_cameras: whether they are known.
        itself: queries that were left out of their own ranking by their file, not by their camera.
    """
    notes = []
    absent, filtered = figures["num_absent"], figures["num_filtered"]
    if absent or filtered:
        only = "in the query itself" if itself else "under the query's own camera"
        notes.append(
            f"{name}: {absent + filtered} queries have no match: {absent} with an identity that is not in the "
            f"gallery, {filtered} with one that is there only {only}"
        )
    if itself:
        notes.append(f"{name}: {itself} of {queries} queries are in the gallery, each left out of its own ranking")
    if not has_cameras:
        notes.append(f"{name}: cameras are not known, so the camera filter is off")
    rates = [f"{100 * rate:g} %" for rate in FALSE_ACCEPT_RATES if rate * queries < 1]
    if figures["open_set"] and rates:
        notes.append(
            f"{name}: {queries} queries are too few for {' and '.join(rates)} false accepts; instead no impostor passes"
        )
    return notes


def told_costs(name: str, depth: int, costs: Sequence[IndexCost]) -> dict[str, Any]:
    """What :func:`score` tells of an index, mean over the splits; a measure that is not known is None."""
    recalls = {k: [cost.recall[k] for cost in costs if k in cost.recall] for k in (1, 10, 100)}
    measures = {
        measure: [getattr(cost, measure) for cost in costs]
        for measure in ("queries_per_second", "megabytes", "build_seconds")
    }
    return {
        "name": name,
        "depth": depth,
        "recall": {str(k): 100 * float(np.mean(each)) for k, each in recalls.items() if each},
        **{measure: None if None in values else float(np.mean(values)) for measure, values in measures.items()},
    }


def _cost(
    index: FaissIndex,
    test: QueryGallery,
    images: tuple[Images, Images],
    features: tuple[np.ndarray, np.ndarray],
    searches: Sequence[FaissSearch | None],
    metric: Metric,
) -> dict[str, Any]:
    """What the index costs, mean over the splits."""
    costs = []
    for (rows, columns), search in zip(split_rows(test, *images), searches, strict=True):
        if search is not None:
            costs.append(cost_of(search, Scorer(*as_comparable(features[0][rows], features[1][columns]), metric)))
    return told_costs(index.index, index.depth, costs)


def _open_set(
    test: QueryGallery,
    images: tuple[Images, Images],
    features: tuple[np.ndarray, np.ndarray],
    searches: Sequence[FaissSearch | None],
    camera_filter: bool,
    device: torch.device | None,
) -> list[list[OpenSetRate]]:
    """The rates of every split; none where there is no impostor."""
    (query, gallery), rates = images, []
    query_cams, gallery_cams, camera_filter = filtered_by(test, images, camera_filter)
    for (rows, columns), search in zip(split_rows(test, query, gallery), searches, strict=True):
        try:
            found = open_set_rates(
                features[0][rows],
                features[1][columns],
                query.pids[rows],
                gallery.pids[columns],
                query_cams[rows],
                gallery_cams[columns],
                camera_filter=camera_filter,
                false_accept_rates=FALSE_ACCEPT_RATES,
                device=device,
                search=search,
            )
        except InputError:  # the arguments are sound, they were ranked: there is no impostor
            found = []
        rates.append(found)
    return rates


@dataclass(frozen=True)
class Ranking:
    """How the gallery was ranked for one query.

    Attributes:
        query: its row among the queries.
        ap: average precision, per cent.
        ranks: in the ranking, from 1: the first ``depth`` and, if no match is among them, that of the first
            match.
        rows: of the gallery, one for each rank.
        scores: cosine similarities, or Euclidean distances with that metric.
        first_match: rank of the first match.
        num_matches: images of the query's identity in the ranking.
    """

    query: int
    ap: float
    ranks: list[int]
    rows: list[int]
    scores: list[float]
    first_match: int
    num_matches: int


def hardest_rankings(
    test: QueryGallery,
    images: tuple[Images, Images],
    features: tuple[np.ndarray, np.ndarray],
    *,
    metric: Metric,
    ap: AveragePrecision,
    camera_filter: bool,
    count: int,
    depth: int = 10,
    among: Collection[int] | None = None,
) -> list[Ranking]:
    """The rankings of the queries with the lowest average precision, hardest first; equal ones in their order.

    Args:
        test, images, features, metric, ap, camera_filter: of :func:`score`. Of several splits the first is taken, and
            images are ranked even where the figures are those of tracks.
        count: rankings wanted, at most.
        depth: ranks wanted.
        among: rows of the queries that are looked at; None is all.
    """
    rows, columns = next(iter(split_rows(test, *images)))
    (queries, gallery), (query_images, gallery_images) = features, images
    query_rows, gallery_rows = np.arange(len(queries))[rows], np.arange(len(gallery))[columns]
    queries, gallery = queries[query_rows], gallery[gallery_rows]
    query_ids, gallery_ids = query_images.pids[query_rows], gallery_images.pids[gallery_rows]
    query_cams, gallery_cams, camera_filter = filtered_by(test, images, camera_filter)
    query_cams, gallery_cams = query_cams[query_rows], gallery_cams[gallery_rows]
    result = evaluate(
        queries,
        gallery,
        query_ids,
        gallery_ids,
        query_cams,
        gallery_cams,
        metric=metric,
        ap=ap,
        camera_filter=camera_filter,
        max_rank=1,
    )
    order = np.argsort(result.ap, kind="stable")  # queries without a match, NaN, come last
    rankings = []
    wanted = [number for number in order[: result.num_valid] if among is None or query_rows[number] in among]
    for number in wanted[:count]:
        scores = _scores(queries[number], gallery, metric)
        right = same(gallery_ids, query_ids[number])
        hidden = gallery_ids == JUNK
        if camera_filter:
            hidden |= right & same(gallery_cams, query_cams[number])
        kept = np.flatnonzero(~hidden)
        nearness = scores[kept] if metric == "cosine" else -scores[kept]
        ranked = kept[np.argsort(-nearness, kind="stable")]
        matches = np.flatnonzero(right[ranked])  # positions, from 0
        places = list(range(min(depth, len(ranked))))
        if matches[0] >= depth:
            places.append(int(matches[0]))
        rankings.append(
            Ranking(
                query=int(query_rows[number]),
                ap=100 * float(result.ap[number]),
                ranks=[place + 1 for place in places],
                rows=gallery_rows[ranked[places]].tolist(),
                scores=scores[ranked[places]].tolist(),
                first_match=int(matches[0]) + 1,
                num_matches=len(matches),
            )
        )
    return rankings


def _scores(query: np.ndarray, gallery: np.ndarray, metric: str) -> np.ndarray:
    """(G,) cosine similarities, or Euclidean distances, of one query (D,) to the gallery (G, D)."""
    query, gallery = query.astype(np.float64), gallery.astype(np.float64)
    if metric != "cosine":
        return np.linalg.norm(gallery - query, axis=1)
    norms = np.linalg.norm(gallery, axis=1) * np.linalg.norm(query)
    return np.divide(gallery @ query, norms, out=np.zeros(len(gallery)), where=norms > 0)
