"""What time says of two tracklets: one person is in one place at a time, and needs time to get to another."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lreid.link.tracklets import Tracklets

OVERLAPPING = -np.inf  # least travel time of two cameras that may see one place
SOME = 8  # transitions between two cameras, from which a travel time is learnt
QUANTILE, SHARE = 0.05, 0.5  # of the transitions' times, and how much of it is taken: some of them are mistaken


def gaps(left: Tracklets, right: Tracklets) -> np.ndarray:
    """Seconds from the end of a pair's earlier tracklet to the start of the later, (L, R); negative: they overlap."""
    starts = np.maximum(left.starts[:, None], right.starts[None])
    starts -= np.minimum(left.ends[:, None], right.ends[None])
    return starts


def possible(left: Tracklets, right: Tracklets, least: np.ndarray) -> np.ndarray:
    """Whether time allows two tracklets to be of one person, (L, R) bool.

    Args:
        left, right: L and R tracklets.
        least: (C, C) float64, symmetric: least travel time in seconds between two cameras, ``OVERLAPPING`` where one
            person may be seen by both at once. On the diagonal 0: a person cannot be in two places of one camera.
    """
    between = gaps(left, right)
    needed = least[left.cameras[:, None], right.cameras[None]]
    return np.where(left.cameras[:, None] == right.cameras[None], between > needed, between >= needed)


def least_times(cameras: int, given: Iterable[tuple[int, int, float]] = ()) -> np.ndarray:
    """Least travel times between cameras, (C, C): what is given, and ``OVERLAPPING`` between all others."""
    least = np.full((cameras, cameras), OVERLAPPING)
    np.fill_diagonal(least, 0)
    for one, other, seconds in given:
        least[one, other] = least[other, one] = seconds
    return least


def learn_travel(tracklets: Tracklets, labels: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Learns travel times from tracklets that were linked by appearance alone.

    Args:
        tracklets: N of them.
        labels: (N,) integers: their identities.
        least: (C, C), see :func:`possible`; what is finite stays.

    Returns:
        (C, C): half of the 5 % quantile of the times from one camera to another where there are ``SOME``; it stays
        ``OVERLAPPING`` where that is not above 0. No learnt time is longer than a route of learnt times through other
        cameras.
    """
    order = np.lexsort((tracklets.ends, tracklets.starts, labels))
    here, after = order[:-1], order[1:]
    moved = (labels[here] == labels[after]) & (tracklets.cameras[here] != tracklets.cameras[after])
    here, after = here[moved], after[moved]
    pairs = np.sort(np.stack([tracklets.cameras[here], tracklets.cameras[after]]), axis=0)
    seconds = tracklets.starts[after] - tracklets.ends[here]
    learnt = least.copy()
    for one, other in np.unique(pairs, axis=1).T:
        times = seconds[(pairs == [[one], [other]]).all(0)]
        low = SHARE * np.quantile(times, QUANTILE)
        if len(times) >= SOME and low > 0 and np.isneginf(least[one, other]):
            learnt[one, other] = learnt[other, one] = low
    routes = np.where(np.isneginf(learnt), np.inf, learnt)
    for camera in range(len(routes)):  # Floyd and Warshall
        routes = np.minimum(routes, routes[:, [camera]] + routes[[camera]])
    return np.where(np.isinf(learnt) | np.isfinite(least), learnt, routes)
