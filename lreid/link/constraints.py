"""Time constraints: a person is in one place at a time and needs time to reach another."""

from collections.abc import Iterable

import numpy as np

from lreid.link.tracklets import Tracklets

OVERLAPPING = -np.inf  # minimum travel time of two cameras with overlapping views
MIN_TRIPS = 8  # minimum number of trips between two cameras to learn a travel time
LONGEST_TRIP = 3600.0  # seconds; a person who comes later did not travel directly
QUANTILE = 0.05  # of the durations of the trips
SHARE = 0.5  # factor applied to the quantile, because some trips are wrong


def possible(left: Tracklets, right: Tracklets, least: np.ndarray) -> np.ndarray:
    """Return which pairs of tracklets can show one person, given their times and cameras, (L, R) bool.

    Args:
        left, right: L and R tracklets to pair.
        least: (C, C) float64, symmetric: minimum travel time between two cameras in seconds, or ``OVERLAPPING`` if both
            may see a person at the same time. The diagonal of ``least`` is 0, because two tracklets of a person in one
            camera cannot overlap in time.
    """
    # Seconds from the earlier end to the later start; negative if both tracklets overlap in time.
    between = np.maximum(left.starts[:, None], right.starts[None]) - np.minimum(left.ends[:, None], right.ends[None])
    needed = least[left.cameras[:, None], right.cameras[None]]
    return np.where(left.cameras[:, None] == right.cameras[None], between > needed, between >= needed)


def least_times(cameras: int, given: Iterable[tuple[int, int, float]] = ()) -> np.ndarray:
    """Make the matrix (C, C) of minimum travel times between cameras; pairs without a time are ``OVERLAPPING``."""
    least = np.full((cameras, cameras), OVERLAPPING)
    np.fill_diagonal(least, 0)
    for one, other, seconds in given:
        least[one, other] = least[other, one] = seconds
    return least


def learn_travel(tracklets: Tracklets, labels: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Learn travel times between cameras from tracklets that were linked without regard to time.

    Args:
        tracklets: N tracklets.
        labels: (N,) integer identities of the tracklets.
        least: (C, C) travel times, see :func:`possible`; finite values were given by the user and are not learned.

    Returns:
        Travel times (C, C). Trips between cameras that take more than ``LONGEST_TRIP`` do not count. With at least
        ``MIN_TRIPS`` trips between two cameras, the learned time is half of the 5 % quantile of their durations. With
        fewer trips, or if this quantile is not above 0, the learned time is ``OVERLAPPING``. A learned time is never
        longer than a route through other cameras.
    """
    order = np.lexsort((tracklets.ends, tracklets.starts, labels))
    before, after = order[:-1], order[1:]
    moved = (labels[before] == labels[after]) & (tracklets.cameras[before] != tracklets.cameras[after])
    moved &= tracklets.starts[after] <= tracklets.ends[before] + LONGEST_TRIP
    before, after = before[moved], after[moved]
    pairs = np.sort(np.stack([tracklets.cameras[before], tracklets.cameras[after]]), axis=0)
    seconds = tracklets.starts[after] - tracklets.ends[before]
    learnt = least.copy()
    for one, other in np.unique(pairs, axis=1).T:
        times = seconds[(pairs == [[one], [other]]).all(0)]
        low = SHARE * np.quantile(times, QUANTILE)
        if len(times) >= MIN_TRIPS and low > 0 and np.isneginf(least[one, other]):
            learnt[one, other] = learnt[other, one] = low
    routes = np.where(np.isneginf(learnt), np.inf, learnt)
    for camera in range(len(routes)):  # Floyd-Warshall algorithm
        routes = np.minimum(routes, routes[:, [camera]] + routes[[camera]])
    return np.where(np.isinf(learnt) | np.isfinite(least), learnt, routes)
