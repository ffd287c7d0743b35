"""Rank a test set by its protocol: over its splits, track by track, or with one gallery image an identity."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
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
    query_cams, gallery_cams, options["camera_filter"] = filtered_by(test, images, options.get("camera_filter", True))
    track_of = dict(zip(test.gallery, test.tracks, strict=True)) if test.tracks else {}
    results = []
    for (rows, columns), search in zip(split_rows(test, query, gallery), searches, strict=True):
        arguments = (
            features[0][rows],
            features[1][columns],
            query.pids[rows],
            gallery.pids[columns],
            query_cams[rows],
            gallery_cams[columns],
        )
        if test.tracks:
            tracks = np.array([track_of[record] for record in gallery.records])
            results.append(evaluate_image_to_track(*arguments, tracks[columns], search=search, **options))
        elif test.single_shot:
            results.append(evaluate_single_shot(*arguments, search=search, **options))
        else:
            results.append(evaluate(*arguments, search=search, **options))
    return results


def filtered_by(
    test: QueryGallery, images: tuple[Images, Images], camera_filter: bool
) -> tuple[np.ndarray, np.ndarray, bool]:
    """What leaves images of the query's identity out of its ranking, if anything does.

    Args:
        test: the test set.
        images: of queries and gallery.
        camera_filter: leave out images of the query's identity and camera.

    Returns:
        Numbers of queries (Q,) and of gallery images (G,), and whether images of equal number and identity are left
        out: those of one camera or, without the camera filter where queries are in the gallery, of one file.
    """
    query, gallery = images
    if camera_filter or not test.in_gallery:
        return query.camids, gallery.camids, camera_filter
    paths = ([record.path for record in each.records] for each in images)
    return *file_numbers(*paths), True


def file_numbers(queries: Iterable[str], gallery: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the images in two lists of paths, int64 from 0: equal where two paths lead to one file."""
    numbers: dict[str, int] = {}
    first, second = (
        np.array([numbers.setdefault(os.path.realpath(path), len(numbers)) for path in paths], dtype=np.int64)
        for paths in (queries, gallery)
    )
    return first, second


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
