"""Accuracy of class-, task- and domain-incremental classification."""

import numpy as np
from torch import Tensor

from lreid.errors import InputError
from lreid.retrieval.arrays import as_features
from lreid.utils.identities import as_labels

Array = np.ndarray | Tensor


def task_accuracies(scores: Array, labels: Array, tasks: Array, class_tasks: Array | None = None) -> list[float]:
    """Compute one row of the accuracy matrix: the accuracy on the test images of each task so far.

    Source: Chaudhry et al., "Riemannian Walk for Incremental Learning", ECCV 2018. Class-incremental and
    task-incremental learning (class-IL, task-IL) are as in Co²L (ICCV 2021, Section 3 and official code) and CCLIS
    (AAAI 2024). ER-ACE and ER-AML use class-IL. Domain-incremental learning (domain-IL) is as in van de Ven and Tolias,
    "Three scenarios for continual learning", 2019, and in Co²L's R-MNIST.

    Args:
        scores: (n, C) float scores of all classes so far, for example logits; minus infinity for classes that are
            impossible. Among classes with the same highest score, the one with the lowest number is predicted.
        labels: (n,) integers in [0, C).
        tasks: (n,) integers in [0, T), the task or domain of each image; every task has a test image.
        class_tasks: (C,) integers, the task of each class. With ``class_tasks``, only classes of an image's task can be
            predicted (task-IL). Without ``class_tasks``, all classes can be predicted (class-IL and domain-IL).

    Returns:
        T accuracies in per cent, one per task.

    Raises:
        InputError: the shapes do not match, or a score is NaN.
    """
    scores = as_features(scores, "scores").cpu().numpy()
    if np.isnan(scores).any():
        raise InputError("scores: some scores are NaN; the model has diverged")
    labels, tasks = as_labels(labels, "labels", len(scores)), as_labels(tasks, "tasks", len(scores))
    if class_tasks is not None:
        class_tasks = as_labels(class_tasks, "tasks of the classes", scores.shape[1])
        scores = np.where(class_tasks == tasks[:, None], scores, -np.inf)  # (n, C)
    # An image whose scores are all minus infinity has no prediction, so it counts as wrong.
    right = (scores.argmax(1) == labels) & (scores.max(1) > -np.inf)  # (n,)
    return [100 * float(right[tasks == task].mean()) for task in range(tasks.max() + 1)]


def scores_of_classes(scores: np.ndarray, classes: int) -> np.ndarray:
    """Reduce scores (n, K) of labels to the best score per class (n, classes); the class is label mod ``classes``."""
    padded = np.full((len(scores), -(-scores.shape[1] // classes) * classes), -np.inf)
    padded[:, : scores.shape[1]] = scores
    return padded.reshape(len(scores), -1, classes).max(1)
