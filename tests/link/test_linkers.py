"""Clustering compared with nested loops in float64, constraints, and the online linker."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.link import offline
from lreid.link.assign import upper_limit
from lreid.link.constraints import learn_travel, least_times, possible
from lreid.link.offline import Nodes, agglomerate, link
from lreid.link.online import OnlineLinker
from lreid.link.tracklets import Tracklets, robust_mean


def unit(array: np.ndarray) -> np.ndarray:
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def people(seed: int, count: int, who: int = 4, spread: float = 0.6) -> tuple[Tracklets, np.ndarray]:
    dice = np.random.default_rng(seed)
    truth = dice.integers(who, size=count)
    features = unit(dice.normal(size=(who, 16))[truth] + spread * dice.normal(size=(count, 16))).astype(np.float32)
    starts = dice.uniform(0, 40 * count, size=count)
    cameras, lengths = dice.integers(3, size=count), dice.uniform(1, 30, size=count)
    return Tracklets(cameras, starts, starts + lengths, features), truth


def linked_by_loops(features: np.ndarray, forbidden: np.ndarray, threshold: float) -> list[frozenset[int]]:
    """Average linkage by nested loops."""
    clusters = [frozenset([number]) for number in range(len(features))]
    similarity = features.astype(np.float64) @ features.astype(np.float64).T
    while True:
        best, pair = threshold, None
        for i, one in enumerate(clusters):
            for other in clusters[:i]:
                if not any(forbidden[a, b] for a in one for b in other):
                    mean = sum(similarity[a, b] for a in one for b in other) / (len(one) * len(other))
                    if mean >= best:
                        best, pair = mean, (one, other)
        if pair is None:
            return clusters
        clusters = [each for each in clusters if each not in pair] + [pair[0] | pair[1]]


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 24), st.floats(-0.2, 0.9))
def test_clusters_equal_those_of_nested_loops(seed: int, count: int, threshold: float) -> None:
    tracklets, _ = people(seed, count)
    forbidden = np.triu(np.random.default_rng(seed).random((count, count)) < 0.1, 1)
    forbidden |= forbidden.T
    nodes = Nodes(tracklets.features.astype(np.float64), np.ones(count), forbidden.copy())
    assert partition(agglomerate(nodes, threshold)) == set(linked_by_loops(tracklets.features, forbidden, threshold))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(0, 12))
def test_links_respect_times_corrections_and_earlier_identities(seed: int, count: int, known_count: int) -> None:
    tracklets, _ = people(seed, count + known_count)
    known, new = tracklets[:known_count], tracklets[known_count:]
    identities = np.unique(np.random.default_rng(seed).integers(3, size=known_count), return_inverse=True)[1]
    least = least_times(3)
    apart = ~possible(new, new, least)
    must = [(0, 1)] if count > 3 else []
    cannot = [(0, 2)] if count > 3 else []
    labels, _ = link(new, least, 0.3, earlier=known, identities=identities, must=must, cannot=cannot)
    for a, b in [*must]:
        assert labels[a] == labels[b]
    for a, b in cannot:
        assert labels[a] != labels[b]
    same = labels[:, None] == labels[None]
    broken = np.argwhere(same & apart & ~np.eye(count, dtype=bool))
    assert all({a, b} == {0, 1} and must for a, b in broken.tolist())  # a user's correction overrides times
    old = identities[None] == labels[:, None]
    assert not (old & ~possible(new, known, least)).any()
    again, _ = link(new, least, 0.3, earlier=known, identities=identities, must=must, cannot=cannot)
    assert (again == labels).all()
    order = np.random.default_rng(seed).permutation(count)
    place = np.argsort(order)
    moved, _ = link(
        *(new[order], least, 0.3),
        earlier=known,
        identities=identities,
        must=[(place[a], place[b]) for a, b in must],
        cannot=[(place[a], place[b]) for a, b in cannot],
    )
    assert partition(moved[place]) == partition(labels)


def test_contradictory_corrections_are_refused() -> None:
    tracklets, _ = people(0, 3)
    with pytest.raises(InputError, match="must be linked"):
        link(tracklets, least_times(3), 0.3, must=[(0, 1), (1, 2)], cannot=[(0, 2)])
    with pytest.raises(InputError, match="threshold"):
        link(tracklets, least_times(3))


def test_merge_overrides_times() -> None:
    tracklets, _ = people(0, 4)
    times = np.array([0.0, 100, 0, 100])  # 0 and 2 are in one camera at the same time, and so are 1 and 3
    at_once = Tracklets(np.zeros(4, np.int64), times, times + 10, tracklets.features)
    assert not link(at_once, least_times(1), 1.0, must=[range(4)])[0].any()
    with pytest.raises(InputError, match="must be linked"):
        link(at_once, least_times(1), 1.0, must=[range(4)], cannot=[(0, 2)])


def test_calibrated_threshold_separates_people() -> None:
    dice = np.random.default_rng(3)
    features = unit(np.repeat(np.eye(20), 10, 0) + 0.1 * dice.normal(size=(200, 20))).astype(np.float32)
    starts = np.tile(np.arange(10) * 100.0, 20) + dice.uniform(0, 5, 200)  # everybody at about the same time
    tracklets = Tracklets(np.tile(np.arange(10) % 3, 20), starts, starts + 10, features)
    found, threshold = link(tracklets, least_times(3))
    assert partition(found) == {frozenset(range(10 * i, 10 * i + 10)) for i in range(20)}
    linker = OnlineLinker(least_times(3), threshold, tracklets[:0], np.zeros(0, np.int64), 200)
    order = np.argsort(tracklets.ends, kind="stable")
    online = np.concatenate([linker.add(tracklets[order[i : i + 7]]) for i in range(0, 200, 7)])
    assert partition(online[np.argsort(order)]) == partition(found)


def test_travel_times_are_learned_and_given_ones_stay() -> None:
    starts = np.arange(40) * 50.0
    tracklets = Tracklets(np.arange(40) % 2, starts, starts + 10, np.zeros((40, 1), np.float32))
    learned = learn_travel(tracklets, np.zeros(40, np.int64), least_times(3))
    assert learned[0, 1] == learned[1, 0] == 20 and np.isneginf(learned[0, 2])  # half of 40 seconds
    assert learn_travel(tracklets, np.zeros(40, np.int64), least_times(3, [(0, 1, 7)]))[0, 1] == 7


def test_learned_travel_times_allow_a_route_through_a_third_camera() -> None:
    """20 people go 0, 1, 2 within a minute; 20 others are at 0 and, an hour later, at 2."""
    quick = [(0, 0), (1, 30), (2, 60)]
    visits = [(who, *each) for who in range(40) for each in (quick if who < 20 else [(0, 0), (2, 3600)])]
    labels, cameras, starts = np.array(visits).T
    tracklets = Tracklets(cameras, starts.astype(float), starts + 10.0, np.zeros((len(visits), 1), np.float32))
    learned = learn_travel(tracklets, labels, least_times(3))
    assert learned[0, 2] == learned[2, 0] == learned[0, 1] + learned[1, 2] == 20
    assert learn_travel(tracklets, labels, least_times(3, [(0, 2, 100)]))[0, 2] == 100


def trips(people: int, seconds: float, day: float) -> Tracklets:
    """Each person is at camera 0 for 10 seconds and, after some seconds, at camera 1."""
    starts = day + 1000.0 * np.arange(people)[:, None] + [0, 10 + seconds]
    features = np.repeat(np.eye(people, dtype=np.float32), 2, 0)
    return Tracklets(np.tile([0, 1], people), starts.ravel(), starts.ravel() + 10, features)


def test_travel_times_are_learned_from_all_days(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[np.ndarray] = []
    monkeypatch.setattr(offline, "learn_travel", lambda *of: learned.append(learn_travel(*of)) or learned[-1])
    first, second = trips(6, 60, 0), trips(6, 40, 86_400)
    one, _ = link(first, least_times(2), 0.5)
    two, _ = link(second, least_times(2), 0.5, earlier=first, identities=one)
    assert (two == one).all()
    link(trips(6, 8, 172_800), learned[-1], 0.5, earlier=first, identities=one)
    # Six transitions are too few, twelve are enough, and a given travel time stays.
    assert [times[0, 1] for times in learned] == [-np.inf, 20, 20]


def test_nights_and_enrolled_images_give_no_travel_times() -> None:
    cameras, starts = np.tile([0, 1], 10), np.tile([0.0, 86_400.0], 10) + np.repeat(np.arange(10.0), 2)
    tracklets = Tracklets(cameras, starts, starts + 10, np.zeros((20, 1), np.float32))
    labels = np.repeat(np.arange(10), 2)
    assert np.isneginf(learn_travel(tracklets, labels, least_times(2))[0, 1])
    starts[::2] = -np.inf  # enrolled images
    tracklets = Tracklets(cameras, starts, np.where(cameras, starts + 10, starts), tracklets.features)
    assert np.isneginf(learn_travel(tracklets, labels, least_times(2))[0, 1])


def test_one_wrong_crop_hardly_changes_the_robust_mean() -> None:
    crops = np.stack([np.eye(4)[0]] * 6 + [np.eye(4)[1]])
    plain = unit(crops.mean(0))
    assert robust_mean(crops, np.zeros(7))[0] > 0.999 > plain[0]
    np.testing.assert_allclose(robust_mean(crops, np.array([0] * 6 + [1])), np.eye(4)[1], atol=1e-6)


@pytest.mark.parametrize(("successes", "trials", "limit"), [(0, 24, 0.10132), (24, 24, 1.0), (3, 300, 0.02476)])
def test_true_rate_exceeds_the_upper_limit_by_little_and_seldom(successes: int, trials: int, limit: float) -> None:
    """The limit p solves (p - share)^2 = z^2 p (1 - p) / trials (Wilson, 1927)."""
    upper = upper_limit(successes, trials)
    assert upper == pytest.approx(limit, abs=1e-5)
    assert (upper - successes / trials) ** 2 == pytest.approx(1.645**2 * upper * (1 - upper) / trials)
