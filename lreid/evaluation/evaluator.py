"""Evaluate a model on the test sets of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lreid.data.images import Images
from lreid.evaluation.scoring import score, searches_of
from lreid.evaluation.test_set import TestSet, TrackletImages
from lreid.models.embedder import Embedder
from lreid.results import TestFigures, figures_of, parts_of, register_metric
from lreid.retrieval.index import FaissIndex
from lreid.retrieval.protocols import average_evaluations, camera_pairs
from lreid.retrieval.ranking import Evaluation

if TYPE_CHECKING:
    from lreid.evaluation.gallery_features import GalleryFeatures

register_metric("camera_pair_mAP", camera_pairs, parts=True)
register_metric("camera_pair_rank1", partial(camera_pairs, rank1=True), parts=True)


class Evaluator:
    """Evaluate models on test sets.

    Args:
        tests: the test sets, see :func:`lreid.evaluation.load_tests`.
        flip: whether to add the features of mirrored images.
        batch_size: number of images per forward pass.
        index: index that searches galleries, or None to compare a query with every gallery image.
        stored: files with gallery features of earlier tasks, which are also searched, as they are and mapped; or None.
    """

    def __init__(
        self,
        tests: Sequence[TestSet],
        *,
        flip: bool = False,
        batch_size: int = 128,
        index: FaissIndex | None = None,
        stored: GalleryFeatures | None = None,
    ) -> None:
        self.tests, self.index, self.stored = tests, index, stored
        self.extraction: dict[str, Any] = {"flip": flip, "batch_size": batch_size}

    @property
    def skipped(self) -> list[str]:
        """Paths of the images that were left out because they cannot be read."""
        return [path for test in self.tests for images in (test.query, test.gallery) for path in images.skipped]

    def try_index(self, dim: int) -> None:
        """Check that an index can be built for every gallery from features of length ``dim``."""
        if self.index:
            for split in (split for test in self.tests for split in test.splits):
                self.index.check(len(split.gallery), dim)

    def features(self, model: Embedder, test: TestSet) -> tuple[np.ndarray, np.ndarray]:
        """Extract the features of a test set's queries (Q, D) and gallery (G, D)."""
        return self.extract(model, test.query), self.extract(model, test.gallery)

    def extract(self, model: Embedder, images: Images | TrackletImages) -> np.ndarray:
        """Extract the features (N, D) of images, or the mean features (T, D) of tracklets."""
        if isinstance(images, TrackletImages):
            return images.means(self.extract(model, images.frames))
        return model.extract(images, **self.extraction)

    def evaluate(
        self,
        model: Embedder,
        *,
        once: Callable[[Callable[[], Any]], Any] = lambda score: score(),
        task: int | None = None,
    ) -> list[TestFigures]:
        """Evaluate a model on every test set, in the order of ``tests``.

        Args:
            once: function that calls its argument in one process only, and returns the result in all processes.
            task: number of the finished task (from 0), under which gallery features are stored; None stores no
                features.
        """
        if self.stored is not None and task is not None:
            images = (self.stored.images_of(each) if each else None for each in (task, task + 1))
            features = [None if each is None else self.extract(model, each) for each in images]
            once(partial(self.stored.fit_map, task, *features))
        figures = []
        for place, test in enumerate(self.tests):
            both = self.features(model, test)
            figures.append(once(partial(self._figures, place, both, model.mean.device, task)))
        return figures

    def _figures(
        self, place: int, features: tuple[np.ndarray, np.ndarray], device: torch.device, task: int | None
    ) -> TestFigures:
        test = self.tests[place]

        def scored(gallery: np.ndarray) -> list[Evaluation]:
            return score(test, (features[0], gallery), searches_of(test, gallery, self.index), device=device)

        def measured(gallery: np.ndarray) -> dict[str, float]:
            return figures_of(average_evaluations(scored(gallery)))

        results = scored(features[1])
        valid = np.zeros(len(features[0]), dtype=bool)
        for split, result in zip(test.splits, results, strict=True):
            valid[split.rows] |= ~np.isnan(result.ap)
        average = average_evaluations(results)
        metrics, parts, valid_queries = figures_of(average), parts_of(average), int(valid.sum())
        crossed: list[dict[str, float]] = []
        mapped: list[dict[str, float]] = []
        if self.stored is not None and task is not None:
            self.stored.write(task, place, features[1])
            for before in range(task):
                gallery = self.stored.read(before, place, features[1].shape)
                crossed.append(measured(gallery))
                mapped.append(measured(self.stored.mapped(gallery, before, task)))
            crossed, mapped = [*crossed, metrics], [*mapped, metrics]
        precisions = _identity_precisions(test, results)
        means = {pid: 100 * float(np.mean(each)) for pid, each in precisions.items()}
        counts = {pid: len(each) // len(test.splits) or 1 for pid, each in precisions.items()}
        return TestFigures(metrics, means, counts, valid_queries, tuple(crossed), tuple(mapped), parts)


def _identity_precisions(test: TestSet, results: Sequence[Evaluation]) -> dict[int, list[float]]:
    """Collect each identity's average precisions in all splits, without identities that have no match."""
    precisions: dict[int, list[float]] = {int(pid): [] for pid in np.unique(test.query.pids)}
    for split, result in zip(test.splits, results, strict=True):
        for pid, ap in zip(split.query.ids, result.ap, strict=True):
            if not np.isnan(ap):
                precisions[int(pid)].append(ap)
    return {pid: each for pid, each in precisions.items() if each}
