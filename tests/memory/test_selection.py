"""Herding against a brute-force search, draws by score against their probabilities, and what all policies share."""

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lreid.memory import SELECTIONS, select
from lreid.memory.selection import draw_by_score, herding


def oracle(features: list[list[float]], count: int) -> list[int]:
    """Algorithm 4 of iCaRL, number by number: in each step all images that are left are tried."""
    unit = []
    for row in features:
        length = math.sqrt(sum(value * value for value in row))
        unit.append([value / length for value in row])
    dim = len(unit[0])
    mean = [sum(row[d] for row in unit) / len(unit) for d in range(dim)]
    chosen: list[int] = []
    for _ in range(min(count, len(unit))):
        errors = {}
        for i in range(len(unit)):
            if i not in chosen:
                group = [*chosen, i]
                center = [sum(unit[j][d] for j in group) / len(group) for d in range(dim)]
                errors[i] = sum((m - c) ** 2 for m, c in zip(mean, center, strict=True))
        chosen.append(min(errors, key=errors.get))
    return chosen


@given(n=st.integers(1, 9), dim=st.integers(2, 5), count=st.integers(0, 11), seed=st.integers(0, 10**6))
def test_herding_equals_brute_force_search(n: int, dim: int, count: int, seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(n, dim)) * 10.0
    chosen = herding(features, count)
    assert chosen.dtype == np.int64 and chosen.tolist() == oracle(features.tolist(), count)


def test_herding_uses_directions_and_the_first_of_equals() -> None:
    features = np.array([[100.0, 0.0], [0.0, 1.0], [0.7, 0.7], [0.0, 5.0]], np.float32)
    # The mean direction is (0.43, 0.68); (0, 1) and (0, 5) are the same, the long vector counts as much as any other.
    assert herding(features, 4).tolist() == oracle(features.tolist(), 4) == [2, 1, 0, 3]
    assert herding(np.ones((4, 3)), 3).tolist() == [0, 1, 2]
    assert herding(np.zeros((2, 3)), 2).tolist() == [0, 1]


def test_nearest_ranks_by_distance_to_the_mean() -> None:
    features = np.array([[0.0], [1.0], [2.0], [9.0]], np.float32)  # mean 3
    assert select(features, 3, "nearest", (0,)).tolist() == [2, 1, 0]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_smaller_selection_is_a_prefix(selection: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.random(12) if selection == "importance" else rng.normal(size=(12, 4)).astype(np.float32)
    everything = select(values, 20, selection, (3, 1))
    assert sorted(everything) == list(range(12))
    for count in range(13):
        assert np.array_equal(select(values, count, selection, (3, 1)), everything[:count])


def test_draw_by_score_follows_the_remaining_shares() -> None:
    """The probability of every ordered pair of four images, as torch.multinomial without replacement has it."""
    scores = np.array([0.5, 4.0, 1.5, 2.0])
    found = Counter(tuple(draw_by_score(scores, 2, (seed,)).tolist()) for seed in range(4000))
    statistic = 0.0
    for first, second in permutations(range(4), 2):
        share = scores[first] / 8 * scores[second] / (8 - scores[first])
        statistic += (found[first, second] - 4000 * share) ** 2 / (4000 * share)
    assert statistic < 31.3  # 11 degrees of freedom, p = 0.001


def test_zero_scores_come_last_and_bad_scores_are_refused() -> None:
    assert sorted(draw_by_score(np.array([0.0, 1e-9, 0.0, 2.0]), 2, (0,))) == [1, 3]
    assert sorted(draw_by_score(np.zeros(3), 3, (0,))) == [0, 1, 2]
    for scores in ([-1.0, 1.0], [np.nan, 1.0], [[1.0], [2.0]]):
        with pytest.raises(ValueError, match=r"scores must be \(2,\), finite and 0 or more"):
            draw_by_score(np.array(scores), 1, (0,))


@pytest.mark.parametrize("selection", ["random", "importance"])
def test_draw_depends_on_its_seed(selection: str) -> None:
    values = np.ones(50)
    one, same, other = (select(values, 10, selection, seed) for seed in ((1, 2), (1, 2), (1, 3)))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_unknown_selection_is_refused() -> None:
    with pytest.raises(ValueError, match="'herd'"):
        select(np.zeros((2, 2)), 1, "herd", (0,))
