"""Select the images of an identity that are kept: policies that rank them, the best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SELECTIONS = ("herding", "nearest", "random", "importance")


def select(values: np.ndarray, count: int, selection: str, seed: Sequence[int]) -> np.ndarray:
    """The images of one identity to keep.

    A smaller ``count`` gives the beginning of what a larger one gives, so an identity can be shrunk later.

    Args:
        values: (n, D) features of the identity's images; for ``importance`` (n,) scores.
        count: number of images to select, if there are enough.
        selection: ``herding`` (:func:`herding`); ``nearest`` to the mean by squared distance, as in ERD's
            official code; ``random``, which is Co²L's uniform choice too; or ``importance``
            (:func:`draw_by_score`), as in CCLIS.
        seed: seed of the random choice.

    Returns:
        Rows of ``values`` (min(count, n),), the best first.

    Raises:
        ValueError: unknown selection.
    """
    if selection == "herding":
        return herding(values, count)
    if selection == "nearest":
        distance = np.square(values - values.mean(0, dtype=np.float64)).sum(1)  # (n,)
        return distance.argsort(kind="stable")[:count]
    if selection == "random":
        return np.random.default_rng(seed).permutation(len(values))[:count]
    if selection == "importance":
        return draw_by_score(values, count, seed)
    raise ValueError(f"unknown selection {selection!r}; use {', '.join(SELECTIONS)}")


def draw_by_score(scores: np.ndarray, count: int, seed: Sequence[int]) -> np.ndarray:
    """Draws images one by one without replacement, with probabilities proportional to their scores.

    Source: the selection of CCLIS (Li et al., AAAI 2024), there ``torch.multinomial`` without replacement. The order
    of ``log(score) + Gumbel noise`` is that of such a draw (Yellott, J. Math. Psychology 1977), and takes
    scores of 0 too: these images come last.

    Args:
        scores: (n,), 0 or more.
        count: images to draw, if there are enough.
        seed: seed of the draw.

    Returns:
        Row numbers (min(count, n),) in the order of the draw.

    Raises:
        ValueError: they are not (n,), or one is negative or not finite.
    """
    scores = _checked(scores, len(scores))
    with np.errstate(divide="ignore"):
        keys = np.log(scores) + np.random.default_rng(seed).gumbel(size=len(scores))  # (n,)
    return (-keys).argsort(kind="stable")[:count]


def importance_weights(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each image's share of the scores of its identity: the weight g of CCLIS, Equation 12.

    Args:
        scores: (n,), 0 or more.
        labels: (n,) integers.

    Returns:
        (n,) float64, sums to 1 over an identity; images are equal where all its scores are 0.

    Raises:
        ValueError: scores are not (n,), or one is negative or not finite.
    """
    scores = _checked(scores, len(labels))
    _, identity, images = np.unique(labels, return_inverse=True, return_counts=True)
    total = np.bincount(identity, scores, minlength=len(images))[identity]  # (n,)
    return np.where(total > 0, scores / np.where(total > 0, total, 1), 1 / images[identity])


def herding(features: np.ndarray, count: int) -> np.ndarray:
    """Greedy selection that keeps the mean of the selected images nearest to the mean of all.

    Source: Rebuffi et al., "iCaRL", CVPR 2017, Algorithm 4, on features of unit length; no image is chosen twice.

    Args:
        features: (n, D), of any length; a row of zeros stays.
        count: images to choose, if there are enough.

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


def _checked(scores: np.ndarray, count: int) -> np.ndarray:
    """The scores as (count,) float64."""
    scores = np.asarray(scores, np.float64)
    if scores.shape != (count,) or not (np.isfinite(scores) & (scores >= 0)).all():
        raise ValueError(f"scores must be ({count},), finite and 0 or more")
    return scores
