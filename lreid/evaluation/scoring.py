"""Score one model on one test set, by the protocol of the test set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from lreid.evaluation.test_set import ListedTest, Split
from lreid.results import MAX_RANK
from lreid.retrieval.arrays import as_features
from lreid.retrieval.protocols import evaluate_image_to_track, evaluate_single_shot
from lreid.retrieval.ranking import Evaluation, evaluate_scores
from lreid.retrieval.scores import BlockScores, IndexScores, Metric, Search, scores_of

if TYPE_CHECKING:
    from lreid.retrieval.rerank import KReciprocal

FeaturePair = tuple[np.ndarray, np.ndarray | None]  # queries (Q, D); gallery (G, D), None if only a search has it
Searches = Sequence[Search | None]  # one per split; None compares with every image


class Index(Protocol):
    """Interface of objects that create an index, such as :class:`lreid.retrieval.FaissIndex` or a stored gallery.

    Attributes:
        index: name of the kind of index.
        depth: number of images that the index returns per query.
    """

    @property
    def index(self) -> str: ...  # noqa: D102

    @property
    def depth(self) -> int: ...  # noqa: D102

    def over(self, gallery: Any, metric: Metric) -> Search:
        """Create an index of gallery features ``(G, D)``."""


def score(
    test: ListedTest,
    features: FeaturePair,
    searches: Searches = (),
    *,
    rerank: KReciprocal | None = None,
    device: torch.device | None = None,
) -> list[Evaluation]:
    """Evaluate features on each split of a test set; a test set without splits counts as one split.

    Args:
        features: features of the test set's queries and gallery images.
        searches: search object for each split; if empty, queries are compared with every gallery image.
        rerank, device: see :func:`lreid.retrieval.evaluate`.
    """
    results, compare = [], partial(scores_of, metric=test.rules.metric, rerank=rerank)
    for split, search in zip(test.splits, searches or [None] * len(test.splits), strict=True):
        scores = split_scores(features, split, search, device, compare)
        options: dict[str, Any] = {"ap": test.rules.ap, "max_rank": MAX_RANK}
        if split.tracks is not None:
            results.append(evaluate_image_to_track(scores, split.query, split.gallery, split.tracks, **options))
        elif test.test.single_shot:
            results.append(evaluate_single_shot(scores, split.query, split.gallery, **options))
        else:
            results.append(evaluate_scores(scores, split.query, split.gallery, **options))
    return [_with_cameras(test, result) for result in results]


def _with_cameras(test: ListedTest, result: Evaluation) -> Evaluation:
    """Replace the cameras of an evaluation by their names; without a camera filter, they are unknown."""

    def named(cameras: np.ndarray | None) -> np.ndarray | None:
        if cameras is None or not test.camera_filter:  # the numbers of files may stand for the cameras
            return None
        numbers, number = np.unique(cameras, return_inverse=True)
        return np.array([test.test.names.cameras.get(int(each), str(each)) for each in numbers])[number]

    matches = result.matches._replace(cameras=named(result.matches.cameras))
    return replace(result, cameras=named(result.cameras), matches=matches)


def searches_of(test: ListedTest, gallery: np.ndarray | None, index: Index | None) -> list[Search | None]:
    """Build an index of the gallery (G, D) for every split; without an index, return a list of None."""
    return [
        index.over(None if gallery is None else gallery[split.columns], test.rules.metric) if index else None
        for split in test.splits
    ]


def split_features(features: FeaturePair, rows: Any, columns: Any) -> FeaturePair:
    """Select the queries and the gallery images of a split."""
    query, gallery = features
    return query[rows], None if gallery is None else gallery[columns]


def split_scores(
    features: FeaturePair, split: Split, search: Search | None, device: torch.device | None, compare: Callable[..., Any]
) -> BlockScores:
    """Compute the scores of a split by ``compare``, or by the search if there are no gallery features."""
    query, gallery = split_features(features, split.rows, split.columns)
    if gallery is None and search is not None:
        return IndexScores(search, as_features(query, "query features", device), len(split.gallery))
    return compare(query, gallery, device=device, search=search)
