"""Time constraints: a person is in one place at a time, and needs time to reach another place."""

from collections.abc import Iterable

import numpy as np

from lreid.link.tracklets import Tracklets

OVERLAPPING = -np.inf  # minimum travel time of two cameras with overlapping views
SOME = 8  # minimum number of transitions between two cameras to learn a travel time
LONGEST = 3600.0  # maximum time of a transition, seconds; a person who returns after more time did not travel directly
QUANTILE, SHARE = (
    0.05,
    0.5,
)  # quantile of the transition times, and the factor applied to the quantile, because some transitions are wrong


def gaps(left: Tracklets, right: Tracklets) -> np.ndarray:
    """Seconds from the end of the earlier to the start of the later tracklet of each pair, (L, R).

    The value is negative if the two tracklets overlap in time.
    """
    starts = np.maximum(left.starts[:, None], right.starts[None])
    starts -= np.minimum(left.ends[:, None], right.ends[None])
    return starts


def possible(left: Tracklets, right: Tracklets, least: np.ndarray) -> np.ndarray:
    """Whether two tracklets can show the same person, considering their times and cameras; (L, R) bool.

    Args:
        left, right: L and R tracklets.
        least: (C, C) float64, symmetric: minimum travel time in seconds between two cameras; ``OVERLAPPING`` if both
            cameras may see a person at the same time. The diagonal is 0: two tracklets of the same person in one camera
            cannot overlap in time.
    """
    between = gaps(left, right)
    needed = least[left.cameras[:, None], right.cameras[None]]
    return np.where(left.cameras[:, None] == right.cameras[None], between > needed, between >= needed)


def least_times(cameras: int, given: Iterable[tuple[int, int, float]] = ()) -> np.ndarray:
    """Matrix (C, C) of minimum travel times between cameras; pairs without a given time are ``OVERLAPPING``."""
    least = np.full((cameras, cameras), OVERLAPPING)
    np.fill_diagonal(least, 0)
    for one, other, seconds in given:
        least[one, other] = least[other, one] = seconds
    return least


def learn_travel(tracklets: Tracklets, labels: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Learn travel times between cameras from tracklets that were linked without time constraints.

    Args:
        tracklets: N tracklets.
        labels: (N,) integers: their identities.
        least: (C, C), see :func:`possible`; travel times that are given (finite values) are not learned.

    Returns:
        (C, C) travel times. Transitions that take more than ``LONGEST`` do not count. If there are at least ``SOME``
        transitions between two cameras, the learnt time is half of the 5 % quantile of the transition times. The learnt
        time is ``OVERLAPPING`` if there are fewer transitions, or if the quantile is not above 0. A learnt time is
        never longer than a route through other cameras.
    """
    order = np.lexsort((tracklets.ends, tracklets.starts, labels))
    before, after = order[:-1], order[1:]
    moved = (labels[before] == labels[after]) & (tracklets.cameras[before] != tracklets.cameras[after])
    moved &= tracklets.starts[after] <= tracklets.ends[before] + LONGEST
    before, after = before[moved], after[moved]
    pairs = np.sort(np.stack([tracklets.cameras[before], tracklets.cameras[after]]), axis=0)
    seconds = tracklets.starts[after] - tracklets.ends[before]
    learnt = least.copy()
    for one, other in np.unique(pairs, axis=1).T:
        times = seconds[(pairs == [[one], [other]]).all(0)]
        low = SHARE * np.quantile(times, QUANTILE)
        if len(times) >= SOME and low > 0 and np.isneginf(least[one, other]):
            learnt[one, other] = learnt[other, one] = low
    routes = np.where(np.isneginf(learnt), np.inf, learnt)
    for camera in range(len(routes)):  # Floyd-Warshall algorithm
        routes = np.minimum(routes, routes[:, [camera]] + routes[[camera]])
    return np.where(np.isinf(learnt) | np.isfinite(least), learnt, routes)
