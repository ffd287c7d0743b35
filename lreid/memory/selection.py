"""Rules that rank the images of an identity, so that a memory can store the best images."""

from collections.abc import Sequence

import numpy as np

SELECTIONS = ("herding", "nearest", "random", "importance")


def select(values: np.ndarray, count: int, selection: str, seed: Sequence[int]) -> np.ndarray:
    """Select the images of one identity for a memory.

    The result for a smaller ``count`` is the beginning of the result for a larger ``count``. A memory can therefore
    reduce an identity's share by removing its last images.

    Args:
        values: (n, D) features of the identity's images, or (n,) scores for ``importance``.
        count: number of images to select, if there are enough.
        selection: one of these rules: ``herding`` (:func:`herding`), ``nearest`` (images nearest to the mean, as in
            ERD's official code), ``random`` (uniform, as in Co²L), ``importance`` (:func:`draw_by_score`, as in CCLIS).
        seed: seed of the random choice.

    Returns:
        Row numbers (min(count, n),) of ``values``, the best row first.

    Raises:
        ValueError: the selection is unknown.
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
    """Draw images one by one without replacement, with probabilities in proportion to their scores.

    Source: CCLIS (Li et al., AAAI 2024), whose code calls ``torch.multinomial`` without replacement. This function
    sorts images by ``log(score) + Gumbel noise``, which gives the same distribution (Yellott, J. Math. Psychology
    1977). Images with score 0 come last.

    Args:
        scores: (n,) scores, 0 or more. count: number of images to draw, if there are enough.
        seed: seed of the draw.

    Returns:
        Row numbers (min(count, n),) in the order of the draw.
    """
    scores = _checked(scores, len(scores))
    with np.errstate(divide="ignore"):
        keys = np.log(scores) + np.random.default_rng(seed).gumbel(size=len(scores))  # (n,)
    return (-keys).argsort(kind="stable")[:count]


def importance_weights(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Divide each image's score by the sum of the scores of its identity (weight g in CCLIS, Equation 12).

    Args:
        scores: (n,) scores, 0 or more. labels: (n,) integers.

    Returns:
        (n,) float64 weights, which sum to 1 per identity. If all scores of an identity are 0, its images get equal
        weights.
    """
    scores = _checked(scores, len(labels))
    _, identity, images = np.unique(labels, return_inverse=True, return_counts=True)
    total = np.bincount(identity, scores, minlength=len(images))[identity]  # (n,)
    return np.where(total > 0, scores / np.where(total > 0, total, 1), 1 / images[identity])


def herding(features: np.ndarray, count: int) -> np.ndarray:
    """Select images one by one, so that the selected images have almost the same mean as all images.

    Source: Rebuffi et al., "iCaRL", CVPR 2017, Algorithm 4, on features of unit length. Each image is selected at most
    once.

    Args:
        features: (n, D) features, which this function scales to unit length; rows of zeros stay 0.
        count: number of images to select, if there are enough.

    Returns:
        Row numbers of ``features`` (min(count, n),) in the order of selection. Among equally good rows, the first is
        selected.
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
    """Check the scores and convert them to float64."""
    scores = np.asarray(scores, np.float64)
    if scores.shape != (count,) or not (np.isfinite(scores) & (scores >= 0)).all():
        raise ValueError(f"scores must be ({count},), finite and 0 or more")
    return scores
