"""Which images of an identity are kept: policies that rank them, the best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SELECTIONS = ("herding", "nearest", "random")


def select(features: np.ndarray, count: int, selection: str, seed: Sequence[int]) -> np.ndarray:
    """The images of one identity to keep.

    A smaller ``count`` gives the beginning of what a larger one gives, so an identity can be shrunk later.

    Args:
        features: (n, D) of the identity's images.
        count: images to choose, if there are so many.
        selection: ``herding`` (:func:`herding`); ``nearest`` to the mean by squared distance, as in ERD's
            official code; or ``random``.
        seed: of the random choice.

    Returns:
        Rows of ``features`` (min(count, n),), the best first.

    Raises:
        ValueError: unknown selection.
    """
    if selection == "herding":
        return herding(features, count)
    if selection == "nearest":
        distance = np.square(features - features.mean(0, dtype=np.float64)).sum(1)  # (n,)
        return distance.argsort(kind="stable")[:count]
    if selection == "random":
        return np.random.default_rng(seed).permutation(len(features))[:count]
    raise ValueError(f"unknown selection {selection!r}; use {', '.join(SELECTIONS)}")


def herding(features: np.ndarray, count: int) -> np.ndarray:
    """Greedy choice that keeps the mean of the chosen images nearest to the mean of all.

    Source: Rebuffi et al., "iCaRL", CVPR 2017, Algorithm 4, on features of unit length; no image is chosen twice.

    Args:
        features: (n, D), of any length; a row of zeros stays.
        count: images to choose, if there are so many.

    Returns:
        Rows of ``features`` (min(count, n),) in the order of choice; of equal ones the first.
    """
    unit = features.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True).clip(min=1e-12)
    mean, total = unit.mean(0), np.zeros(unit.shape[1])  # (D,)
    free = np.ones(len(unit), bool)
    chosen: list[int] = []
    for number in range(1, min(count, len(unit)) + 1):
        distance = np.square(mean - (total + unit) / number).sum(1)  # (n,)
        best = int(np.where(free, distance, np.inf).argmin())
        chosen.append(best)
        free[best] = False
        total += unit[best]
    return np.array(chosen, np.int64)
