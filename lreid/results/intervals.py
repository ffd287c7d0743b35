"""Confidence intervals for the difference between two models with the same queries."""

from collections.abc import Sequence

import numpy as np

DRAWS = 2000
ENDS = (0.025, 0.975)  # quantiles at the ends of a 95 % interval


def gain_interval(before: Sequence[float], after: Sequence[float], queries: Sequence[int]) -> tuple[float, float]:
    """Compute a bootstrap interval for the difference between two mAPs, by resampling identities.

    All queries of an identity are drawn together, because their average precisions depend on each other. Both models
    are scored on the same random draws of identities, and every call makes the same draws.

    Args:
        before, after: average precision of each of n identities, under each of the two models.
        queries: number of queries of each identity, 1 or more.

    Returns:
        Lower and upper end of ``mAP(after) - mAP(before)``, in the unit of the average precisions.
    """
    low, high = np.quantile(gain_draws(before, after, queries), ENDS)
    return float(low), float(high)


def gain_draws(before: Sequence[float], after: Sequence[float], queries: Sequence[int], *, seed: int = 0) -> np.ndarray:
    """Draw the gains ``(DRAWS,)`` of :func:`gain_interval`; draws with different seeds are independent."""
    gains, weights = np.subtract(after, before), np.asarray(queries, np.float64)  # (n,)
    if not len(gains):
        raise ValueError("no identities to resample")
    counts = np.random.default_rng(seed).multinomial(len(gains), np.full(len(gains), 1 / len(gains)), size=DRAWS)
    return counts @ (weights * gains) / (counts @ weights)
