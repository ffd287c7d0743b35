"""Accuracy of class- and task-incremental classification, and what is forgotten of it."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from lreid.errors import InputError
from lreid.identities import as_labels
from lreid.retrieval.arrays import as_features


def accuracy(scores: np.ndarray | Tensor, labels: np.ndarray | Tensor) -> float:
    """Images whose own class has the highest score, in per cent.

    Args:
        scores: (n, C) float, for instance logits; minus infinity for classes that cannot be. Of equal ones the first
            counts as the highest.
        labels: (n,) integers; those outside [0, C) are never right.

    Raises:
        InputError: shapes that do not fit, or a score is NaN.
    """
    scores, labels = _checked(scores, labels)
    return 100 * float(_right(scores, labels).mean())


def task_accuracies(
    scores: np.ndarray | Tensor, labels: np.ndarray | Tensor, class_tasks: np.ndarray | Tensor, *, task_il: bool
) -> list[float]:
    """Accuracy on the test images of each task so far: one row of the accuracy matrix.

    Source: Chaudhry et al., "Riemannian Walk for Incremental Learning", ECCV 2018; class-IL and task-IL as in Co²L
    (ICCV 2021, Section 3 and official code) and CCLIS (AAAI 2024). The single head of ER-ACE and ER-AML is class-IL.

    Args:
        scores: (n, C) float, of all classes so far.
        labels: (n,) integers in [0, C).
        class_tasks: (C,) integers, the task of each class; tasks are 0 .. T-1.
        task_il: tell apart only the classes of the image's task, which the model is told (task-IL), instead of all
            classes so far (class-IL).

    Returns:
        T numbers, in per cent.

    Raises:
        InputError: shapes that do not fit, a score is NaN, a label is not in [0, C), or a task has no class or image.
    """
    scores, labels = _checked(scores, labels)
    class_tasks = as_labels(class_tasks, "tasks of the classes", scores.shape[1])
    if labels.min() < 0 or labels.max() >= len(class_tasks):
        raise InputError(f"labels must be in [0, {len(class_tasks)}), the classes so far; leave others out")
    tasks = class_tasks[labels]  # (n,)
    seen = np.arange(class_tasks.max() + 1)
    if not (np.array_equal(np.unique(class_tasks), seen) and np.array_equal(np.unique(tasks), seen)):
        raise InputError("every task from 0 to the last must have a class and a test image")
    if task_il:
        scores = np.where(class_tasks == tasks[:, None], scores, -np.inf)  # (n, C)
    right = _right(scores, labels)  # (n,)
    return [100 * float(right[tasks == task].mean()) for task in seen]


def domain_accuracies(
    scores: np.ndarray | Tensor, labels: np.ndarray | Tensor, domains: np.ndarray | Tensor
) -> list[float]:
    """Accuracy on the test images of each domain so far, which share their classes: domain-incremental learning.

    Source: van de Ven and Tolias, "Three scenarios for continual learning", 2019, as in R-MNIST of Co²L.

    Args:
        scores: (n, C) float, see :func:`scores_of_classes` where they tell domains apart.
        labels: (n,) integers in [0, C).
        domains: (n,) integers, 0 .. T-1.

    Returns:
        T numbers, in per cent.

    Raises:
        InputError: shapes that do not fit, a score is NaN, or a domain has no image.
    """
    scores, labels = _checked(scores, labels)
    domains = as_labels(domains, "domains", len(scores))
    seen = np.arange(domains.max() + 1)
    if not np.array_equal(np.unique(domains), seen):
        raise InputError("every domain from 0 to the last must have a test image")
    right = _right(scores, labels)  # (n,)
    return [100 * float(right[domains == domain].mean()) for domain in seen]


def scores_of_classes(scores: np.ndarray, classes: int) -> np.ndarray:
    """Of scores (n, K) of labels, where a label modulo ``classes`` is its class, the highest of each: (n, classes)."""
    padded = np.full((len(scores), -(-scores.shape[1] // classes) * classes), -np.inf)
    padded[:, : scores.shape[1]] = scores
    return padded.reshape(len(scores), -1, classes).max(1)


def _checked(scores: np.ndarray | Tensor, labels: np.ndarray | Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C) and labels (n,) int64 as arrays."""
    scores = as_features(scores, "scores").cpu().numpy()
    if np.isnan(scores).any():
        raise InputError("scores: some are NaN; the model has diverged")
    return scores, as_labels(labels, "labels", len(scores))


def _right(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(n,) bool; an image whose every score is minus infinity has no answer, so no right one."""
    return (scores.argmax(1) == labels) & (scores.max(1) > -np.inf)
