"""Evaluate a model on the test sets of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from lreid.data.disk_cache import DiskCache
from lreid.data.images import Images
from lreid.data.records import QueryGallery
from lreid.errors import InputError
from lreid.evaluation.past import PastGalleries
from lreid.evaluation.protocol import evaluate_splits, filtered_by, searches_of, split_rows
from lreid.identities import JUNK, UNKNOWN
from lreid.models.embedder import Embedder
from lreid.results import MAX_RANK, figures_of
from lreid.retrieval import Evaluation, FaissIndex, average_evaluations
from lreid.retrieval.ranking import AveragePrecision
from lreid.retrieval.scores import Metric


@dataclass(frozen=True)
class TestFigures:
    """A model on one test set; everything in per cent. Where the test set has splits, means over them.

    Attributes:
        metrics: all of :data:`lreid.results.METRICS` by name.
        identity_ap: mean average precision of the queries of each identity, by ascending id.
        num_valid: queries that have a match in the gallery of some split.
        cross_model: ``metrics`` of the same queries in the gallery of the model after each task up to this one; empty
            where they are not asked for.
    """

    __test__ = False  # pytest: not a test

    metrics: dict[str, float]
    identity_ap: dict[int, float]
    num_valid: int
    cross_model: tuple[dict[str, float], ...] = ()


class Evaluator:
    """Holds the images of all test sets and scores models on them.

    Args:
        tests: the test sets.
        height, width: input size of the models.
        cache_gib: decoded images are kept in memory up to this size in all.
        skip_bad: leave out images that cannot be read.
        metric, ap, camera_filter: of :func:`lreid.retrieval.evaluate`.
        flip: add the features of the flipped images.
        batch_size: images a forward pass.
        disk: where those images are kept that do not fit into memory.
        index: search galleries through it; None compares with every image.
        dim: width of the models' features, to try the index beforehand; 0 does not try it.
        past: where galleries are kept after every task, and searched after later ones, too; None does neither.

    Raises:
        InputError: an image cannot be read, not one query of a test set has a match, or an index cannot be made of a
            gallery.
    """

    def __init__(
        self,
        tests: Sequence[QueryGallery],
        *,
        height: int,
        width: int,
        cache_gib: float = 4.0,
        skip_bad: bool = False,
        metric: Metric = "cosine",
        ap: AveragePrecision = "rectangular",
        camera_filter: bool = True,
        flip: bool = False,
        batch_size: int = 128,
        disk: DiskCache = DiskCache(),  # noqa: B008 (frozen)
        index: FaissIndex | None = None,
        dim: int = 0,
        past: PastGalleries | None = None,
    ) -> None:
        self.tests, self.index, self.past = tests, index, past
        self.protocol: dict[str, Any] = {"metric": metric, "ap": ap, "camera_filter": camera_filter}
        self.extraction: dict[str, Any] = {"flip": flip, "batch_size": batch_size}
        self.images: list[tuple[Images, Images]] = []
        for test in tests:
            pair: list[Images] = []
            for records in (test.query, test.gallery):
                images = Images(records, height=height, width=width, cache_gib=cache_gib, disk=disk, skip_bad=skip_bad)
                cache_gib -= images.cached_gib
                pair.append(images)
            self.images.append((pair[0], pair[1]))
            _require_match(test, *self.images[-1], camera_filter=camera_filter)
            if index and dim:
                for _, columns in split_rows(test, *pair):
                    index.check(len(np.arange(len(pair[1]))[columns]), dim)

    @property
    def skipped(self) -> list[str]:
        """Images left out because they cannot be read."""
        return [path for pair in self.images for images in pair for path in images.skipped]

    def evaluate(
        self,
        model: Embedder,
        *,
        once: Callable[[Callable[[], TestFigures]], TestFigures] = lambda score: score(),
        task: int | None = None,
    ) -> list[TestFigures]:
        """The figures of every test set, in order.

        Args:
            model: whose features are compared.
            once: calls what it is given; where several processes extract together, in one of them only.
            task: from 0, whose gallery is kept and after which past ones are searched, too; None does neither.

        Raises:
            InputError: a gallery of an earlier task is gone.
        """
        figures = []
        for place, images in enumerate(self.images):
            query, gallery = images
            features = model.extract(query, **self.extraction), model.extract(gallery, **self.extraction)
            figures.append(once(partial(self._figures, place, features, model.mean.device, task)))
        return figures

    def _figures(
        self, place: int, features: tuple[np.ndarray, np.ndarray], device: torch.device, task: int | None
    ) -> TestFigures:
        test, images = self.tests[place], self.images[place]
        query = images[0]
        results = self._ranked(place, features, device)
        identity_aps: dict[int, list[float]] = {int(pid): [] for pid in np.unique(query.pids)}
        valid = np.zeros(len(query), dtype=bool)
        for (rows, _), result in zip(split_rows(test, *images), results, strict=True):
            valid[rows] |= ~np.isnan(result.ap)
            for pid, ap in zip(query.pids[rows], result.ap, strict=True):
                if not np.isnan(ap):
                    identity_aps[int(pid)].append(ap)
        metrics = figures_of(average_evaluations(results))
        crossed: list[dict[str, float]] = []
        if self.past is not None and task is not None:
            self.past.keep(task, place, features[1])
            for earlier in range(task):
                gallery = self.past.read(earlier, place, features[1].shape)
                ranked = self._ranked(place, (features[0], gallery), device)
                crossed.append(figures_of(average_evaluations(ranked)))
            crossed.append(metrics)
        return TestFigures(
            metrics,
            {pid: 100 * float(np.mean(aps)) for pid, aps in identity_aps.items() if aps},
            int(valid.sum()),
            tuple(crossed),
        )

    def _ranked(self, place: int, features: tuple[np.ndarray, np.ndarray], device: torch.device) -> list[Evaluation]:
        """The splits of a test set, by features of queries (Q, D) and gallery (G, D)."""
        test, images = self.tests[place], self.images[place]
        searches = searches_of(self.index, test, images, features[1], self.protocol["metric"])
        return evaluate_splits(test, images, features, searches, max_rank=MAX_RANK, device=device, **self.protocol)


def _require_match(test: QueryGallery, query: Images, gallery: Images, *, camera_filter: bool) -> None:
    """Says before the training, not after it, that a test set cannot be scored."""
    query_cams, gallery_cams, filtered = filtered_by(test, (query, gallery), camera_filter)
    cameras: dict[int, set[int]] = {}
    for pid, camera in zip(gallery.pids.tolist(), gallery_cams.tolist(), strict=True):
        if pid != JUNK:
            cameras.setdefault(pid, set()).add(camera)
    found = [cameras.get(pid, set()) for pid in query.pids.tolist()]
    if any(found) and filtered:
        found = [seen - ({camera} - {UNKNOWN}) for seen, camera in zip(found, query_cams.tolist(), strict=True)]
        if not any(found) and not camera_filter:
            raise InputError(f"{test.name}: no query has another image of its identity in the gallery; add some")
        if not any(found):
            raise InputError(
                f"{test.name}: no query has a match by another camera than its own, so the camera filter leaves "
                "nothing to find; set camera_filter=False, or give queries and gallery different cameras "
                "(cameras='apart', or camid in a CSV file)"
            )
    if not any(found):
        raise InputError(f"{test.name}: not one identity of the queries is in the gallery; test on some that are")
