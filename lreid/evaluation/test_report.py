"""What ``lreid test`` reports on a test set: a row of metrics, notes, and the queries with the lowest AP."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lreid.errors import InputError
from lreid.evaluation.scoring import FeaturePair, Index, Searches, score, searches_of, split_features, split_scores
from lreid.evaluation.test_set import ListedTest, TestSet
from lreid.results import figures_of, parts_of
from lreid.retrieval.arrays import as_comparable
from lreid.retrieval.index import cost_of
from lreid.retrieval.protocols import FALSE_ACCEPT_RATES, OpenSetRate, average_evaluations, open_set_rates
from lreid.retrieval.ranking import evaluate_scores, ranking_of
from lreid.retrieval.scores import Scorer, Search, cosines_of, scores_of
from lreid.utils.identities import same

if TYPE_CHECKING:
    import torch

    from lreid.retrieval.rerank import KReciprocal


def row_of(
    test: ListedTest,
    features: FeaturePair,
    index: Index | None = None,
    *,
    cost: bool = True,
    rerank: KReciprocal | None = None,
    device: torch.device | None = None,
) -> dict[str, Any]:
    """Compute a row of ``test.json``: the metrics of :func:`score`, open-set rates, and the cost of the index.

    Args:
        test: test set; with several splits, metrics are averaged and counts are summed over the splits.
        features: features of the test set's queries and gallery images.
        index: index that searches the gallery, or None to compare queries with every gallery image.
        cost: whether to measure the speed, accuracy and size of the index.
        rerank, device: see :func:`lreid.retrieval.evaluate`.

    Returns:
        The row as values for JSON, with rates in per cent. The row contains the metrics in
        :data:`lreid.results.METRICS`, and the query counts ``num_valid``, ``num_absent`` and ``num_filtered`` of
        :class:`lreid.retrieval.Evaluation`. The list ``open_set`` contains ``false_accept_rate``, ``threshold`` (a
        cosine similarity) and ``true_positive_rate``. The list ``open_set`` is empty if no query can serve as an
        impostor, or if the gallery is re-ranked. Open-set rates always compare single images by cosine similarity, even
        with another metric or with tracks. With ``cost`` and an index, the entry ``index`` contains the index's name,
        its ``depth`` and the values of :class:`lreid.retrieval.IndexCost`.
    """
    searches = searches_of(test, features[1], index)
    result = average_evaluations(score(test, features, searches, rerank=rerank, device=device))
    row: dict[str, Any] = figures_of(result)
    row["parts"] = parts_of(result)
    row |= {count: getattr(result, count) for count in ("num_valid", "num_absent", "num_filtered")}
    row["open_set"] = []
    if rerank is None:
        by_cosine = test.rules.metric == "cosine"
        cosine = searches if by_cosine else searches_of(test.by("cosine"), features[1], index)
        row["open_set"] = _mean_rates(_open_set(test, features, cosine, device))
    if index and cost and features[1] is not None:
        row["index"] = _cost(test, features, searches, index)
    return row


def _mean_rates(rates: list[list[OpenSetRate]]) -> list[dict[str, float]]:
    """Average the open-set rates over the splits, in the form that :func:`row_of` returns."""
    return [
        {
            "false_accept_rate": 100 * rate,
            "threshold": float(np.mean([each.threshold for each in split_rates])),
            "true_positive_rate": 100 * float(np.mean([each.true_positive_rate for each in split_rates])),
        }
        for rate, *split_rates in zip(FALSE_ACCEPT_RATES, *rates, strict=False)
        if split_rates
    ]


def _open_set(
    test: ListedTest, features: FeaturePair, searches: Searches, device: torch.device | None
) -> list[list[OpenSetRate]]:
    """Compute the open-set rates of every split; the list of a split without impostors is empty."""
    rates = []
    for split, search in zip(test.splits, searches, strict=True):
        scores = split_scores(features, split, search, device, cosines_of)
        try:
            rates.append(open_set_rates(scores, split.query, split.gallery))
        except InputError:  # the labels were valid for the ranking, so there is no impostor
            rates.append([])
    return rates


def _cost(test: ListedTest, features: FeaturePair, searches: Sequence[Search | None], index: Index) -> dict[str, Any]:
    """Measure the cost of an index, averaged over the splits; unknown values are None."""
    costs = []
    for split, search in zip(test.splits, searches, strict=True):
        if search is not None:
            pair = as_comparable(*split_features(features, split.rows, split.columns))
            costs.append(cost_of(search, Scorer(*pair, test.rules.metric)))
    recalls = {k: [cost.recall[k] for cost in costs if k in cost.recall] for k in (1, 10, 100)}
    names = ("queries_per_second", "megabytes", "build_seconds")
    measures = {name: [getattr(cost, name) for cost in costs] for name in names}
    return {
        "name": index.index,
        "depth": index.depth,
        "recall": {str(k): 100 * float(np.mean(each)) for k, each in recalls.items() if each},
        **{measure: None if None in values else float(np.mean(values)) for measure, values in measures.items()},
    }


def described(test: ListedTest) -> dict[str, Any]:
    """Return the entry of a test set in the list ``tests`` of ``test.json``."""
    queries, gallery = test.test.sizes
    outfits = {} if test.rules.outfits == "both" else {"outfits": test.rules.outfits}
    return {"name": test.name, "queries": queries, "gallery": gallery, "camera_filter": test.camera_filter} | outfits


def notes_on(test: ListedTest, row: dict[str, Any]) -> list[str]:
    """Write notes about the metrics of one test set (:func:`row_of`), one line each."""
    notes, name, (queries, _) = [], test.name, test.test.sizes
    itself = 0 if test.camera_filter else test.test.in_gallery  # queries that their own ranking leaves out
    absent, filtered = row["num_absent"], row["num_filtered"]
    if absent or filtered:
        only = "in the query itself" if itself else "under the query's own camera"
        if test.rules.outfits != "both":
            only += f" or not in {'its' if test.rules.outfits == 'same' else 'another'} outfit"
        notes.append(
            f"{name}: {absent + filtered} queries have no match: {absent} with an identity that is not in the "
            f"gallery, {filtered} with one that occurs only {only}"
        )
    if itself:
        notes.append(f"{name}: {itself} of {queries} queries are in the gallery, each left out of its own ranking")
    if not test.test.has_cameras:
        notes.append(f"{name}: cameras are not known, so the camera filter is off")
    rates = [f"{100 * rate:g} %" for rate in FALSE_ACCEPT_RATES if rate * queries < 1]
    if row["open_set"] and rates:
        notes.append(
            f"{name}: {queries} queries are too few for a false accept rate of {' and '.join(rates)}; instead no "
            "impostor passes"
        )
    return notes


@dataclass(frozen=True)
class Ranking:
    """The ranking of a gallery for one query.

    Attributes:
        query: row number of the query among the queries of the test set.
        ap: average precision in per cent.
        ranks: ranks of the listed images, counted from 1: the first ``depth`` ranks, and the rank of the first match if
            it is larger.
        rows: row number of each listed image in the gallery.
        scores: cosine similarity of each listed image to the query; for Euclidean metrics, the Euclidean distance.
        first_match: rank of the first match.
        num_matches: number of matches in the ranking, which are images of the query's identity.
    """

    query: int
    ap: float
    ranks: list[int]
    rows: list[int]
    scores: list[float]
    first_match: int
    num_matches: int


def hardest_rankings(
    test: TestSet,
    features: tuple[np.ndarray, np.ndarray],
    *,
    count: int,
    depth: int = 10,
    among: Collection[int] | None = None,
) -> list[Ranking]:
    """Return the rankings of the queries with the lowest average precision, lowest first; ties keep their order.

    Args:
        test: test set, of which only the first split is used. Single images are ranked even if the test set ranks
            tracks.
        features: features of the test set's queries and of its gallery images.
        count: maximum number of rankings to return.
        depth: number of ranks to list per query.
        among: row numbers of the queries to choose from, or None for all queries.
    """
    split = test.splits[0]
    queries, gallery = features[0][split.rows], features[1][split.columns]
    query_rows, gallery_rows = np.arange(len(features[0]))[split.rows], np.arange(len(features[1]))[split.columns]
    scores = scores_of(queries, gallery, test.rules.metric)
    result = evaluate_scores(scores, split.query, split.gallery, ap=test.rules.ap, max_rank=1)
    order = np.argsort(result.ap, kind="stable")  # queries without a match, NaN, come last
    chosen = [number for number in order[: result.num_valid] if among is None or query_rows[number] in among]
    rankings = []
    for number in chosen[:count]:
        ranked = ranking_of(scores, split.query, split.gallery, number)
        matches = np.flatnonzero(same(split.gallery.ids[ranked], split.query.ids[number]))  # positions, from 0
        places = list(range(min(depth, len(ranked))))
        if matches[0] >= depth:
            places.append(int(matches[0]))
        shown = ranked[places]
        rankings.append(
            Ranking(
                query=int(query_rows[number]),
                ap=100 * float(result.ap[number]),
                ranks=[place + 1 for place in places],
                rows=gallery_rows[shown].tolist(),
                scores=_shown(queries[number], gallery[shown], test.rules.metric).tolist(),
                first_match=int(matches[0]) + 1,
                num_matches=len(matches),
            )
        )
    return rankings


def _shown(query: np.ndarray, gallery: np.ndarray, metric: str) -> np.ndarray:
    """Compute cosine similarities or Euclidean distances (k,) between one query (D,) and images (k, D)."""
    query, gallery = query.astype(np.float64), gallery.astype(np.float64)
    if metric != "cosine":
        return np.linalg.norm(gallery - query, axis=1)
    norms = np.linalg.norm(gallery, axis=1) * np.linalg.norm(query)
    return np.divide(gallery @ query, norms, out=np.zeros(len(gallery)), where=norms > 0)
