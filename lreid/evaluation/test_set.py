"""Test sets with images, splits and ranking rules."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from lreid.data.images import Described, Images
from lreid.data.records import QueryGallery, Record
from lreid.errors import ArgumentError, InputError
from lreid.retrieval.matches import SameIdentity
from lreid.retrieval.ranking import AveragePrecision
from lreid.retrieval.scores import Metric
from lreid.utils.identities import UNKNOWN, Labels, Outfits, usable

logger = logging.getLogger("lreid")


@dataclass(frozen=True)
class Rules:
    """Rules for rankings: see :func:`lreid.retrieval.evaluate` and :func:`lreid.utils.identities.usable`."""

    metric: Metric = "cosine"
    ap: AveragePrecision = "rectangular"
    camera_filter: bool = True
    outfits: Outfits = "both"


class Labelled(Protocol):
    """Interface of labelled images: :class:`~lreid.data.images.Images`, :class:`TrackletImages`, or plain records."""

    @property
    def records(self) -> Sequence[Record]:
        """Records of the images: paths, identities and cameras."""

    @property
    def pids(self) -> np.ndarray:
        """Identities of the images, ``(N,)`` int64."""

    @property
    def camids(self) -> np.ndarray:
        """Cameras of the images, ``(N,)`` int64."""


class TrackletImages(Described):
    """A sequence of tracklets, ordered by tracklet number; the first frame represents the tracklet.

    Args:
        frames: frames of all tracklets.

    Attributes:
        records: first frame of each tracklet.
    """

    def __init__(self, frames: Images) -> None:
        self.frames = frames
        numbers = [record.tracklet for record in frames.records]
        self._order = np.argsort(numbers, kind="stable")
        self._starts = np.unique(np.asarray(numbers)[self._order], return_index=True)[1]  # (T,)
        self._first = self._order[self._starts]  # (T,)
        self.records = tuple(frames.records[row] for row in self._first)
        self.skipped, self.cached_gib = frames.skipped, frames.cached_gib

    def __getitem__(self, index: Any) -> Any:
        """Return the first frame of a tracklet, (H, W, 3) uint8, RGB."""
        return self.frames[int(self._first[index])]

    def means(self, features: np.ndarray) -> np.ndarray:
        """Compute the mean feature of each tracklet ``(T, D)`` from the features of all frames ``(N, D)`` float32."""
        sums = np.add.reduceat(features[self._order], self._starts, axis=0, dtype=np.float64)
        counts = np.diff([*self._starts, len(features)])
        return (sums / counts[:, None]).astype(features.dtype)


class Split(NamedTuple):
    """Queries and gallery images of one split of a test set.

    Attributes:
        rows: row numbers of the split's queries in the test set, as a numpy index.
        columns: row numbers of the split's gallery images in the test set, as a numpy index.
        query, gallery: labels of the queries and of the gallery images. Without a camera filter, the labels have no
            cameras. If some files are both query and gallery image, file numbers replace the cameras, so that a query's
            own file is removed from its ranking.
        tracks: ``(G,)`` track numbers if tracks are ranked, otherwise None.
    """

    rows: Any
    columns: Any
    query: Labels
    gallery: Labels
    tracks: np.ndarray | None = None


@dataclass(frozen=True)
class ListedTest:
    """A test set with the labels of its images and its rules for rankings.

    Attributes:
        query, gallery: images of the test set that can be read.
    """

    test: QueryGallery
    query: Labelled
    gallery: Labelled
    rules: Rules = Rules()

    @property
    def name(self) -> str:
        """Name of the test set."""
        return self.test.name

    @property
    def camera_filter(self) -> bool:
        """Whether rankings leave out gallery images with the query's identity and camera."""
        return self.rules.camera_filter and self.test.has_cameras

    def by(self, metric: Metric) -> ListedTest:
        """Return a copy of the test set with another metric."""
        return replace(self, rules=replace(self.rules, metric=metric))

    @cached_property
    def labels(self) -> tuple[Labels, Labels]:
        """The labels of all queries and all gallery images."""
        cameras: tuple[Any, Any] = (None, None)
        if self.camera_filter:
            cameras = self.query.camids, self.gallery.camids
        elif self.test.in_gallery:
            cameras = self.image_numbers
        query, gallery = Labels(self.query.pids, cameras[0]), Labels(self.gallery.pids, cameras[1])
        if (worn := self.rules.outfits) == "both":
            return query, gallery
        outfits = (np.array([record.outfit for record in each.records]) for each in (self.query, self.gallery))
        return replace(query, outfits=next(outfits), worn=worn), replace(gallery, outfits=next(outfits), worn=worn)

    @property
    def image_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the queries and of the gallery images; the same file has the same number."""
        return file_numbers(*([record.path for record in each.records] for each in (self.query, self.gallery)))

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """Splits of the test set, or one split with all its images. Images that cannot be read are in no split."""
        query, gallery = self.labels
        tracks = None
        if self.test.tracks:
            track_of = dict(zip(self.test.gallery, self.test.tracks, strict=True))
            tracks = np.array([track_of[record] for record in self.gallery.records])
        return tuple(
            Split(rows, columns, query[rows], gallery[columns], None if tracks is None else tracks[columns])
            for rows, columns in self._rows()
        )

    def _rows(self) -> Iterator[tuple[Any, Any]]:
        if not self.test.splits:
            yield slice(None), slice(None)
            return
        places = [{record: place for place, record in enumerate(each.records)} for each in (self.query, self.gallery)]
        for split in self.test.splits:
            rows, columns = (
                np.array([place[records[i]] for i in chosen if records[i] in place], dtype=np.int64)
                for place, records, chosen in zip(places, (self.test.query, self.test.gallery), split, strict=True)
            )
            yield rows, columns


@dataclass(frozen=True)
class TestSet(ListedTest):
    """A test set with images that can be decoded."""

    __test__ = False  # pytest: not a test

    query: Images | TrackletImages
    gallery: Images | TrackletImages

    @cached_property
    def image_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the queries and of the gallery images; images with equal pixels have the same number."""
        assert isinstance(self.query, Images) and isinstance(self.gallery, Images)  # only published sets have tracklets
        return numbers_of(self.query.digests, self.gallery.digests)

    def with_copies(self) -> TestSet:
        """Return the test set after counting the queries that have the pixels of a gallery image, with a warning.

        Where a query that is also a gallery image is left out of its own ranking, its copies are left out too. In other
        test sets, copies are counted only if all images are cached, because other images would be decoded once more.
        """
        cached = self.query.cached_gib and self.gallery.cached_gib
        if self.test.tracklets or (self.test.in_gallery is None and not cached):
            return self
        is_copy = np.isin(*self.image_numbers)
        if (count := int(is_copy.sum())) <= (self.test.in_gallery or 0):
            return self
        first = self.query.records[int(is_copy.argmax())].path
        text = "%s: %d of %d queries have the pixels of a gallery image, the first is %s"
        logger.warning(text, self.name, count, len(is_copy), first)
        return self if self.test.in_gallery is None else replace(self, test=replace(self.test, in_gallery=count))

    def require_match(self) -> None:
        """Check before training that the test set can be evaluated."""
        query, gallery = self.labels
        rows, columns = SameIdentity(gallery.ids)(query.ids)
        if not len(rows):
            raise InputError(f"{self.name}: none of the queries' identities is in the gallery; add images of some")
        if usable(query[rows], gallery[columns]).any():
            return
        if self.rules.outfits != "both":
            raise ArgumentError("outfits", f"is {self.rules.outfits}, but {self.name} has no such match; use both")
        if not self.camera_filter:
            raise InputError(f"{self.name}: no query has a second image of its identity in the gallery; add some")
        raise InputError(
            f"{self.name}: no query has a match from another camera, so the camera filter leaves "
            "nothing to find; set camera_filter=False, or give queries and gallery different cameras "
            "(cameras='apart', or camid in a CSV file)"
        )


def load_tests(
    tests: Sequence[QueryGallery],
    rules: Rules = Rules(),
    *,
    height: int,
    width: int,
    cache_gib: float = 4.0,
    skip_bad: bool = False,
) -> list[TestSet]:
    """Load test sets with their images.

    Args:
        height, width: input size of the models.
        cache_gib: maximum size of all decoded images in memory, in GiB.
        skip_bad: whether to leave out images that cannot be read.

    Raises:
        InputError: an image cannot be read, or no query of a test set has a match.
        ArgumentError: the rules filter by outfit, but the outfits of a test set are unknown.
    """
    loaded = []
    for test in tests:
        if rules.outfits != "both" and any(each.outfit == UNKNOWN for each in (*test.query, *test.gallery)):
            fault = f"is {rules.outfits}, but the outfits in {test.name} are unknown; set it to both"
            raise ArgumentError("outfits", fault)
    for test in tests:
        pair: list[Images | TrackletImages] = []
        for records in (test.query, test.gallery):
            images = Images(records, height=height, width=width, cache_gib=cache_gib, skip_bad=skip_bad)
            cache_gib -= images.cached_gib
            pair.append(TrackletImages(images) if test.tracklets else images)
        loaded.append(TestSet(test, pair[0], pair[1], rules).with_copies())
        loaded[-1].require_match()
    return loaded


def file_numbers(queries: Iterable[str], gallery: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Number the files in two lists of paths (int64, from 0), so that paths to the same file have the same number."""
    return numbers_of(map(os.path.realpath, queries), map(os.path.realpath, gallery))


def numbers_of(queries: Iterable[Any], gallery: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Number the keys in two lists (int64, from 0), so that equal keys have the same number."""
    numbers: dict[Any, int] = {}
    first, second = ([numbers.setdefault(key, len(numbers)) for key in keys] for keys in (queries, gallery))
    return np.array(first, np.int64), np.array(second, np.int64)
