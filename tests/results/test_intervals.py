"""The interval of a gain: against a loop over identities, and what must hold of any bootstrap."""

import numpy as np
import pytest

from lreid.results import gain_interval


def test_equal_gains_have_an_interval_of_zero_width() -> None:
    assert gain_interval([10, 50, 90], [15, 55, 95], [1, 4, 2]) == pytest.approx((5, 5))


def test_interval_matches_a_loop_over_draws() -> None:
    rng = np.random.default_rng(3)
    before, after, queries = rng.uniform(0, 100, 12), rng.uniform(0, 100, 12), rng.integers(1, 6, 12)
    drawn = []
    for _ in range(20_000):
        chosen = rng.integers(0, 12, 12)
        precisions = [np.repeat(each[chosen], queries[chosen]).mean() for each in (before, after)]
        drawn.append(precisions[1] - precisions[0])
    low, high = gain_interval(before, after, queries)
    assert (low, high) == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=2.5)  # of 2000 draws: 0.7 deviation
    assert low < np.average(after - before, weights=queries) < high
    assert (low, high) == gain_interval(before, after, queries)


def test_interval_without_identities_is_refused() -> None:
    with pytest.raises(ValueError, match="no identities"):
        gain_interval([], [], [])
