"""Confidence intervals for the difference between two models with the same queries."""

from collections.abc import Sequence

import numpy as np

DRAWS = 2000
LEVEL = 0.95  # confidence level


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
    gains, weights = np.subtract(after, before), np.asarray(queries, np.float64)  # (n,)
    if not len(gains):
        raise ValueError("no identities to resample")
    counts = np.random.default_rng(0).multinomial(len(gains), np.full(len(gains), 1 / len(gains)), size=DRAWS)
    drawn = counts @ (weights * gains) / (counts @ weights)  # (DRAWS,)
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)
