"""Classification accuracy after every task, on test images of the classes trained so far."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lreid.classification.accuracy import scores_of_classes, task_accuracies
from lreid.classification.alignment import buffer_alignment
from lreid.classification.probe import Augmented, knn_scores, linear_probe_scores, nearest_mean_scores
from lreid.data.images import Images
from lreid.data.loaders import WithExemplars
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.evaluation.observer import Learner

Rows = dict[str, dict[str, list[float]]]  # rows per classifier, by "class" and "task"


class ClassLearner(Learner, Protocol):
    """A method of :mod:`lreid.methods` whose classification accuracy is evaluated."""

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Return scores (n, classes so far) for features (n, dim); None without a classifier."""

    def augmented(self, pixels: np.ndarray, *, seed: int) -> Tensor:
        """Augment pixels (n, H, W, 3) uint8 as in training; return normalised images (n, 3, H, W)."""


class AccuracyEvaluator:
    """Evaluate up to four classifiers on the held-out images of all tasks.

    * ``classifier``: the method's own classifier, if it has one (ER-ACE and ER-AML, ICLR 2022);
    * ``linear``: a linear classifier that :func:`linear_probe_scores` trains on frozen features (Co²L, CCLIS);
    * ``knn``: the votes of :func:`knn_scores` (Contrast Scoring); classes with few stored images get few votes, and a
      class without a vote cannot be predicted;
    * ``nearest_mean``: the similarities of :func:`nearest_mean_scores` (iCaRL).

    As in Co²L, ``linear``, ``knn`` and ``nearest_mean`` are fitted to the current task's images and the images in the
    method's memory. The protocols that Contrast Scoring cites use the entire labelled training set, which a lifelong
    learner does not store. All four classifiers use the same features as retrieval, but without mirrored images.

    Args:
        height, width: input size of the models.
        cache_gib: maximum size of all decoded images in memory, in GiB.
        skip_bad: whether to leave out images that cannot be read.
        batch_size: number of images per forward pass.
        probe: options of :func:`linear_probe_scores`.
        augment: whether the linear probe trains on images that are augmented again in every epoch.

    Raises:
        InputError: a task has no held-out images, or a held-out image cannot be read.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        height: int,
        width: int,
        cache_gib: float,
        skip_bad: bool,
        batch_size: int,
        probe: Mapping[str, Any] = MappingProxyType({}),
        augment: bool = False,
    ) -> None:
        self.batch_size, self.probe, self.augment = batch_size, probe, augment
        self.size: dict[str, Any] = {"height": height, "width": width}
        self.shared_classes = tasks[0].shared_classes
        self.class_tasks = np.repeat(np.arange(len(tasks)), [len(task.classes) for task in tasks])  # (C,)
        self.images: list[Images] = []  # one entry per task
        for task in tasks:
            if not task.held_out:
                raise InputError(
                    f"{task.name}: has no test images of its training classes, like all re-identification data sets; "
                    "train on folder:PATH, or set accuracy=False"
                )
            images = Images(task.held_out, height=height, width=width, cache_gib=cache_gib, skip_bad=skip_bad)
            cache_gib -= images.cached_gib
            self.images.append(images)
        self.cache_gib = cache_gib

    def evaluate(self, learner: ClassLearner, task: Task) -> Rows:
        """Compute accuracies in per cent on the held-out images of each task so far.

        Returns:
            For each classifier, two rows of :func:`task_accuracies`. For the row ``class``, all classes so far can be
            predicted. For the row ``task``, only classes of the image's task can be predicted. If tasks share classes,
            both rows are equal.
        """
        test = np.concatenate([self._features(learner, each) for each in self.images[: task.index + 1]])
        labels = np.concatenate([each.pids for each in self.images[: task.index + 1]])  # (n,)
        train, train_labels = self._labelled_features(learner, task)  # (N, dim), (N,)
        tasks = self.class_tasks[labels]  # (n,)
        if self.shared_classes:
            labels, train_labels = labels % self.shared_classes, train_labels % self.shared_classes
        with torch.no_grad():
            own = learner.class_scores(torch.from_numpy(test).to(learner.model.mean.device))
        votes = knn_scores(train, train_labels, test)
        scores = {} if own is None else {"classifier": own.cpu().numpy()}
        augmented = self._augmented(learner, task) if self.augment else None
        scores["linear"] = linear_probe_scores(train, train_labels, test, **self.probe, augmented=augmented)
        scores["knn"] = np.where(votes > 0, votes, -np.inf)
        scores["nearest_mean"] = nearest_mean_scores(train, train_labels, test)
        kinds = {"class": None, "task": self.class_tasks[self.class_tasks <= task.index]}
        if self.shared_classes:
            scores = {name: scores_of_classes(each, self.shared_classes) for name, each in scores.items()}
            kinds["task"] = None
        return {
            name: {kind: task_accuracies(each, labels, tasks, limit) for kind, limit in kinds.items()}
            for name, each in scores.items()
        }

    def alignment(self, learner: ClassLearner, task: Task) -> dict[str, float]:
        """Compute how similar each task's stored images are to held-out images, see :func:`buffer_alignment`.

        Returns:
            A dictionary: for each task with images in the memory, the task's index as text and a similarity in [-1, 1].
        """
        stored = learner.memory.labels if learner.memory is not None else np.empty(0, np.int64)
        rows = np.flatnonzero(self.class_tasks[stored] <= task.index)
        if not len(rows):
            return {}
        similarities = buffer_alignment(
            self._features(learner, learner.memory.images[rows]),
            stored[rows],
            np.concatenate([self._features(learner, each) for each in self.images]),
            np.concatenate([each.pids for each in self.images]),
            self.class_tasks,
        )
        return {str(index): similarity for index, similarity in similarities.items()}

    def _labelled_features(self, learner: ClassLearner, task: Task) -> tuple[np.ndarray, np.ndarray]:
        """Return features (N, dim) and labels (N,) of the current task's images and of past images in the memory."""
        stored, labels = self._past(learner, task)
        features = [self._features(learner, each) for each in ([record.path for record in task.records], stored)]
        return np.concatenate(features), np.concatenate([[record.pid for record in task.records], labels])

    def _past(self, learner: ClassLearner, task: Task) -> tuple[Any, np.ndarray]:
        """Return the images of past tasks in the memory, and their labels (M,)."""
        if learner.memory is None:
            return np.empty((0, *self.size.values(), 3), np.uint8), np.empty(0, np.int64)
        past = np.flatnonzero(~np.isin(learner.memory.labels, task.classes))
        return learner.memory.images[past], learner.memory.labels[past]

    def _augmented(self, learner: ClassLearner, task: Task) -> Augmented:
        """Return the function that augments rows of :meth:`_labelled_features`, and extracts their features."""
        own = Images(task.records, **self.size, cache_gib=self.cache_gib)
        images = WithExemplars(own, *self._past(learner, task))

        def features(rows: np.ndarray, seed: int) -> np.ndarray:
            pixels = np.stack([images[row] for row in rows])  # (B, H, W, 3)
            return self._features(learner, learner.augmented(pixels, seed=seed))

        return features

    def _features(self, learner: ClassLearner, images: Any) -> np.ndarray:
        return learner.model.extract(images, batch_size=self.batch_size)  # (n, dim)
