"""Find the queries with the lowest average precision, and the first images of each ranking."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from lreid.evaluation.test_set import TestSet
from lreid.retrieval.ranking import evaluate_scores, ranking_of
from lreid.retrieval.scores import scores_of
from lreid.utils.identities import same


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
