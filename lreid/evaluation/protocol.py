"""Rank a test set by its protocol: over its splits, track by track, or with one gallery image an identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lreid.data.images import Images
from lreid.data.records import QueryGallery
from lreid.retrieval import Evaluation, FaissIndex, evaluate, evaluate_image_to_track, evaluate_single_shot
from lreid.retrieval.index import FaissSearch, Search
from lreid.retrieval.scores import Metric


def searches_of(
    index: FaissIndex | None, test: QueryGallery, images: tuple[Images, Images], gallery: np.ndarray, metric: Metric
) -> list[FaissSearch | None]:
    """The gallery of every split of a test set in an index; None each where there is none.

    Args:
        index: its kind.
        test: the test set.
        images: of queries and gallery.
        gallery: (G, D) features of the latter.
        metric: of :func:`lreid.retrieval.evaluate`.
    """
    return [index.over(gallery[columns], metric) if index else None for _, columns in split_rows(test, *images)]


def evaluate_splits(
    test: QueryGallery,
    images: tuple[Images, Images],
    features: tuple[np.ndarray, np.ndarray],
    searches: Sequence[Search | None],
    **options: Any,
) -> list[Evaluation]:
    """How every split of a test set is searched; a test set without splits is a single one.

    Args:
        test: the test set.
        images: of queries and gallery.
        features: (Q, D) and (G, D), of these images.
        searches: of every split, see :func:`searches_of`.
        options: ``metric``, ``ap``, ``camera_filter``, ``max_rank``, ``device`` and ``rerank`` of
            :func:`lreid.retrieval.evaluate`.

    Raises:
        InputError: no query of a split has a match.
    """
    query, gallery = images
    track_of = dict(zip(test.gallery, test.tracks, strict=True)) if test.tracks else {}
    results = []
    for (rows, columns), search in zip(split_rows(test, query, gallery), searches, strict=True):
        arguments = (
            features[0][rows],
            features[1][columns],
            query.pids[rows],
            gallery.pids[columns],
            query.camids[rows],
            gallery.camids[columns],
        )
        if test.tracks:
            tracks = np.array([track_of[record] for record in gallery.records])
            results.append(evaluate_image_to_track(*arguments, tracks[columns], search=search, **options))
        elif test.single_shot:
            results.append(evaluate_single_shot(*arguments, search=search, **options))
        else:
            results.append(evaluate(*arguments, search=search, **options))
    return results


def split_rows(test: QueryGallery, query: Images, gallery: Images) -> Iterator[tuple[Any, Any]]:
    """Rows of queries and of gallery images of every split, without the images that could not be read."""
    if not test.splits:
        yield slice(None), slice(None)
        return
    places = [{record: place for place, record in enumerate(images.records)} for images in (query, gallery)]
    for split in test.splits:
        rows, columns = (
            np.array([place[records[i]] for i in chosen if records[i] in place], dtype=np.int64)
            for place, records, chosen in zip(places, (test.query, test.gallery), split, strict=True)
        )
        yield rows, columns
