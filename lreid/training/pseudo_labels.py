"""Pseudo-labels: clusters of a task's images replace its identities; clusters are computed again before every epoch."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.data.images import Images
from lreid.data.loaders import Relabelled, TaskBatches
from lreid.data.records import Benchmark, Record, Task
from lreid.errors import ArgumentError, counted
from lreid.evaluation.clusters import cluster
from lreid.methods import Method
from lreid.models.embedder import Embedder, frozen_copy
from lreid.training.batches import Batching
from lreid.utils.extras import Extra

logger = logging.getLogger("lreid")
optimize = Extra("scipy.optimize", "cluster")


class PseudoLabels:
    """Pseudo-labels for tasks without annotations, for methods that train on P x K batches.

    Before each epoch, a teacher extracts the features of all images without annotations. The clusters of the teacher's
    features are the identities in the epoch (:func:`~lreid.evaluation.clusters.cluster`), as in MMT (ICLR 2020) and
    SpCL (NeurIPS 2020). Images in no cluster are left out of the epoch. The teacher's weights are the exponential
    moving average of the network's weights, with a time constant of one epoch.

    A cluster gets the label of the cluster in the previous epoch with which it shares the most images. A classifier row
    therefore represents the same cluster from epoch to epoch. Each task reserves as many labels as it can have
    clusters. All images of a tracklet get the same label. A tracklet in no cluster is a separate identity.

    Args:
        batching: options of the training batches.
        labelled: share of the identities of each task whose annotated labels are used, in [0, 1).

    Attributes:
        before: states of the model and the method before the task, which :meth:`undo` restores if clustering fails.

    Raises:
        ArgumentError: the method does not train on P x K batches, or requires that labels do not change between epochs.
    """

    def __init__(self, method: Method, batching: Batching, benchmark: Benchmark, labelled: float) -> None:
        if method.batches == "stream" or batching.stream.SEGMENT:
            raise ArgumentError("labels", "needs a method that trains on P x K batches, not on a stream; set it to all")
        if not method.relabels:
            raise ArgumentError("labels", "needs a method whose labels may change from epoch to epoch; set it to all")
        self.method, self.batching, self.labelled = method, batching, labelled
        self.teacher: Embedder = method.model
        self.before: dict[str, Any] = {}
        self.labels = np.empty(0, np.int64)  # (n,) label of each image of the task; -1 outside all clusters
        self.annotated = np.empty(0, bool)  # (n,) whether the label is an annotation
        # First label of each task; labels of a previous run come before all of them.
        self.firsts = [next((min(task.classes) for task in benchmark.tasks if task.records), 0)]
        for task in benchmark.tasks:
            self.firsts.append(self.firsts[-1] + self._most(task.records, self._chosen(task)))

    def steps(self, task: Task) -> int:
        """Number of batches per epoch: ``TRAIN.EPOCH_STEPS``, or by default about one pass over the images."""
        method, keys = self.method, self.batching
        episode = method.batches == "episodes"
        identities = keys.episode.IDENTITIES if episode else keys.batch.IDENTITIES
        images = keys.episode.SUPPORT + keys.episode.QUERY if episode else keys.batch.IMAGES
        return keys.train.EPOCH_STEPS or max(len(task.records) // (identities * images), 1)

    def begin(self, task: Task) -> Task | None:
        """Start a task. Return the task with its first pseudo-labels, or None if there are fewer than two clusters."""
        self.before = copy.deepcopy({"model": self.method.model.state_dict(), "method": self.method.state_dict()})
        self._load(task)
        self.teacher = frozen_copy(self.method.model)
        chosen = self._chosen(task)
        ranks = {pid: self.firsts[task.index] + rank for rank, pid in enumerate(sorted(chosen))}
        self.labels = np.array([ranks.get(record.pid, -1) for record in self.images.records], np.int64)
        self.annotated = self.labels >= 0
        return self.refresh()

    def refresh(self) -> Task | None:
        """Cluster images again and return the task with new labels; below two clusters, warn and return None."""
        images = Relabelled(self.images, np.where(self.annotated, -1, 0))  # without annotations
        free = images.rows  # (m,)
        features = self.teacher.extract(images, flip=True)  # (m, dim)
        units, size = _units(images.records), self.batching.train.CLUSTER_SIZE
        clusters = cluster(features, units, self.images.camids[free], size)  # (m,)
        first = self.firsts[self.task.index] + len(set(self.labels[self.annotated].tolist()))
        self.labels[free] = follow(clusters, self.labels[free], range(first, self.firsts[self.task.index + 1]))
        identities = set(self.labels.tolist()) - {-1}
        outside = int((self.labels == -1).sum())
        line = "%s: %s as pseudo-labels; %d of %d images are outside all clusters"
        logger.info(line, self.task.name, counted(len(identities), "cluster"), outside, len(self.labels))
        if len(identities) > 1:
            return self.current
        what = "in one cluster" if identities else "outside all clusters"
        logger.warning(
            "%s: pseudo-labels failed: its %d images are %s; the task is skipped, and the model stays as it was; "
            "start from a better model, or set METHOD.LABELS to all",
            self.task.name,
            len(self.labels),
            what,
        )
        return None

    @property
    def current(self) -> Task:
        """The task with its current labels, without images that are in no cluster."""
        return replace(
            self.task,
            records=tuple(self._relabelled().records),
            labels=tuple(range(self.firsts[self.task.index], self.firsts[self.task.index + 1])),
        )

    def batches(self, first: int) -> TaskBatches:
        """Create the batches of the task with its current labels, starting at batch number ``first``."""
        batching, identities = copy.copy(self.batching), len(set(self.labels.tolist()) - {-1})
        batching.train = _changed(batching.train, EPOCH_STEPS=self.steps(self.task))
        if identities < self.batching.episode.IDENTITIES:
            batching.episode = _changed(batching.episode, IDENTITIES=identities)
        if identities < self.batching.batch.IDENTITIES:
            batching.batch = _changed(batching.batch, IDENTITIES=identities, NEIGHBOURS=1)
        return batching.batches(self.method, self.current, first=first, images=self._relabelled())

    @torch.no_grad()
    def after_step(self) -> None:
        """Update the teacher, a moving average of the network."""
        share = 1 / max(self.steps(self.task), 2)
        for old, new in zip(_tensors(self.teacher), _tensors(self.method.model), strict=True):
            if old.is_floating_point():
                old.lerp_(new, share)
            else:
                old.copy_(new)

    def undo(self) -> None:
        """Restore model and method to their states before the task."""
        self.method.model.load_state_dict(self.before["model"])
        self.method.load_state_dict(self.before["method"])

    def state_dict(self) -> dict[str, Any]:
        """Return the labels, the teacher, and the states of model and method before the task."""
        state = {"labels": torch.from_numpy(self.labels), "annotated": torch.from_numpy(self.annotated)}
        return state | {"teacher": self.teacher.state_dict(), "before": self.before}

    def load_state_dict(self, state: dict[str, Any], task: Task) -> None:
        """Restore a state that :meth:`state_dict` returned during the task."""
        self._load(task)
        self.labels, self.annotated = (state[name].cpu().numpy().copy() for name in ("labels", "annotated"))
        self.teacher, self.before = frozen_copy(self.method.model), state["before"]
        self.teacher.load_state_dict(state["teacher"])

    def _load(self, task: Task) -> None:
        keys = self.batching
        size: dict[str, Any] = {
            "height": keys.input.HEIGHT,
            "width": keys.input.WIDTH,
            "cache_gib": keys.data.CACHE_GIB,
        }
        self.images = Images(task.records, **size, skip_bad=keys.data.SKIP_BAD_IMAGES)
        self.task = task

    def _relabelled(self) -> Relabelled:
        return Relabelled(self.images, self.labels)

    def _chosen(self, task: Task) -> set[int]:
        """Choose the identities of a task whose annotated labels are used; the choice depends only on seed and task."""
        if not self.labelled or not task.records:
            return set()
        pids = task.classes
        order = np.random.default_rng([self.batching.seed, task.index]).permutation(len(pids))
        return {pids[row] for row in order[: max(round(self.labelled * len(pids)), 1)]}

    def _most(self, records: Sequence[Record], chosen: set[int]) -> int:
        """Compute the maximum number of labels that a task can need for chosen identities and clusters."""
        free = [record for record in records if record.pid not in chosen]
        units = _units(free)
        return len(chosen) + (len(set(units.tolist())) if _tracked(free) else len(free) // 2)


def follow(clusters: np.ndarray, before: np.ndarray, labels: range) -> np.ndarray:
    """Assign labels to clusters so that similar clusters in successive epochs have the same label.

    Args:
        clusters: (n,) cluster number of each image, -1 for images in no cluster.
        before: (n,) label of each image in the previous epoch, -1 for images without a label.
        labels: labels to choose from, at least as many as clusters.

    Returns:
        (n,) labels, -1 for images in no cluster. Clusters and previous labels are matched one to one, so that matched
        pairs have as many images in common as possible. A cluster that shares no image with its matched label gets the
        lowest unused label.
    """
    names, old = np.unique(clusters[clusters >= 0]), np.unique(before[before >= 0])
    shared = np.zeros((len(names), len(old)), np.int64)
    both = (clusters >= 0) & (before >= 0)
    np.add.at(shared, (np.searchsorted(names, clusters[both]), np.searchsorted(old, before[both])), 1)
    rows, columns = optimize.linear_sum_assignment(shared, maximize=True)
    label_of = {int(names[r]): int(old[c]) for r, c in zip(rows, columns, strict=True) if shared[r, c]}
    unused = iter(sorted(set(labels) - set(label_of.values())))
    label_of = {int(name): label_of[int(name)] if int(name) in label_of else next(unused) for name in names}
    return np.array([label_of.get(int(each), -1) for each in clusters], np.int64)


def _units(records: Sequence[Record]) -> np.ndarray:
    """Assign each record the number of its clustering unit (n,): its tracklet, or the image itself without one."""
    tracked = _tracked(records)
    return np.array([record.tracklet if tracked else row for row, record in enumerate(records)], np.int64)


def _tracked(records: Sequence[Record]) -> bool:
    return bool(records) and all(record.tracklet >= 0 for record in records)


def _tensors(model: Embedder) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _changed(section: Any, **values: Any) -> Any:
    """Copy a section of a config with other values for some keys."""
    section = section.clone()
    section.defrost()
    section.update(values)
    return section
