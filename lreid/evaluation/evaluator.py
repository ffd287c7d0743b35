"""Figures of a model on the test sets of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lreid.data.images import Images
from lreid.data.records import QueryGallery
from lreid.models import Embedder
from lreid.retrieval import evaluate


@dataclass(frozen=True)
class TestFigures:
    """A model on one test set; everything in per cent.

    Attributes:
        mAP: mean average precision.
        rank1, rank5, rank10: queries with a match among the first 1, 5, 10.
        identity_ap: mean average precision of the queries of each identity, by ascending id.
        num_valid: queries that have a match in the gallery.
    """

    __test__ = False  # pytest: not a test

    mAP: float
    rank1: float
    rank5: float
    rank10: float
    identity_ap: dict[int, float]
    num_valid: int


class Evaluator:
    """Holds the images of all test sets and scores models on them.

    Args:
        tests: the test sets.
        height, width: input size of the models.
        cache_gib: decoded images are kept in memory up to this size in all.
        skip_bad: leave out images that cannot be read.
        metric, ap, camera_filter: of :func:`lreid.retrieval.evaluate`.
        flip: add the features of the mirrored images.
        batch_size: images a forward pass.
    """

    def __init__(
        self, tests: Sequence[QueryGallery], *, height: int, width: int, cache_gib: float, skip_bad: bool,
        metric: str, ap: str, camera_filter: bool, flip: bool, batch_size: int,
    ) -> None:  # fmt: skip
        self.tests = tests
        self.protocol = {"metric": metric, "ap": ap, "camera_filter": camera_filter}
        self.extraction = {"flip": flip, "batch_size": batch_size}
        self.images: list[tuple[Images, Images]] = []
        for test in tests:
            pair = []
            for records in (test.query, test.gallery):
                images = Images(records, height=height, width=width, cache_gib=cache_gib, skip_bad=skip_bad)
                cache_gib -= images.cached_gib
                pair.append(images)
            self.images.append((pair[0], pair[1]))

    @property
    def skipped(self) -> list[str]:
        """Images left out because they cannot be read."""
        return [path for pair in self.images for images in pair for path in images.skipped]

    def evaluate(self, model: Embedder) -> list[TestFigures]:
        """The figures of every test set, in order."""
        return [self._figures(model, query, gallery) for query, gallery in self.images]

    def _figures(self, model: Embedder, query: Images, gallery: Images) -> TestFigures:
        result = evaluate(
            model.extract(query, **self.extraction),  # (Q, dim)
            model.extract(gallery, **self.extraction),  # (G, dim)
            query.pids, gallery.pids, query.camids, gallery.camids,
            max_rank=10, **self.protocol,
        )  # fmt: skip
        identity_ap = {}
        for pid in np.unique(query.pids):
            aps = result.ap[query.pids == pid]
            if not np.isnan(aps).all():
                identity_ap[int(pid)] = 100 * float(np.nanmean(aps))
        rank1, rank5, rank10 = (100 * float(result.cmc[k - 1]) for k in (1, 5, 10))
        return TestFigures(100 * float(result.mAP), rank1, rank5, rank10, identity_ap, result.num_valid)
