"""Link all tracklets at once by agglomerative clustering, except pairs that time or a user's correction forbids."""

from __future__ import annotations

import copy
import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lreid.errors import InputError, counted
from lreid.link.constraints import learn_travel, possible
from lreid.link.tracklets import Tracklets

ROWS_AT_ONCE = 512  # number of rows of the similarity matrix that are in memory at once
MAX_NODES = 30_000  # for this number, the matrix of forbidden pairs takes 0.9 GB
MIN_IMPOSTORS = 200  # minimum number of impostor pairs from which a threshold is calibrated
STRICT = 0.1  # factor of the false accept rate when tracklets are linked to learn travel times
MARGIN = 1e-4  # of float32 similarities, which only preselect pairs; the clustering uses float64 means
IndexPairs = Iterable[tuple[int, int]]


@dataclass
class Nodes:
    """The nodes of the clustering: earlier identities and new tracklets, each stored as a sum of unit vectors.

    The mean cosine similarity between the members of two clusters is the dot product of their sums, divided by the
    product of their sizes. Average linkage of nodes therefore needs no similarity matrix.

    Attributes:
        sums: (n, D) float64.
        weights: (n,) float64, the number of tracklets in each node.
        forbidden: (n, n) bool, symmetric, True for pairs that must never be joined.
    """

    sums: np.ndarray
    weights: np.ndarray
    forbidden: np.ndarray


class _Clusters:
    """Clusters of nodes; the number of a cluster is the lowest number of its nodes."""

    def __init__(self, nodes: Nodes, threshold: float) -> None:
        self.nodes, self.threshold = nodes, threshold
        self.labels = np.arange(len(nodes.weights))
        # For each cluster, all clusters that have a node whose similarity to one of its nodes reaches the threshold.
        self.near = _neighbours(nodes, threshold)
        self.joins = np.zeros(len(self.labels), np.int64)  # how often each cluster has changed

    def join(self, a: int, b: int) -> int:
        a, b = sorted((a, b))
        self.nodes.sums[a] += self.nodes.sums[b]
        self.nodes.weights[a] += self.nodes.weights[b]
        self.nodes.forbidden[a] |= self.nodes.forbidden[b]
        self.near[a] = np.concatenate([self.near[a], self.near[b]])
        self.near[b] = self.near[b][:0]
        self.labels[self.labels == b] = a
        self.joins[[a, b]] += 1
        return a

    def are_apart(self, a: int, b: int) -> bool:
        return bool((self.labels[self.nodes.forbidden[a]] == b).any())

    def candidate(self, a: int) -> tuple[float, int, int, int, int] | None:
        """Find the most similar cluster that may be joined with cluster ``a``, and return a heap entry."""
        others = np.zeros(len(self.labels), dtype=bool)
        others[self.labels[self.near[a]]] = True
        others[a] = False
        others[self.labels[self.nodes.forbidden[a]]] = False
        self.near[a] = np.flatnonzero(others)
        if not len(self.near[a]):
            return None
        scores = self.nodes.sums[self.near[a]] @ self.nodes.sums[a]
        scores /= self.nodes.weights[self.near[a]] * self.nodes.weights[a]
        best = int(scores.argmax())
        b = int(self.near[a][best])
        if scores[best] < self.threshold:
            return None
        return -float(scores[best]), a, b, int(self.joins[a]), int(self.joins[b])


def agglomerate(nodes: Nodes, threshold: float, must: IndexPairs = ()) -> np.ndarray:
    """Join clusters by average linkage (UPGMA) on cosine similarities, until a threshold is reached.

    Without forbidden pairs and weights, the result equals ``scipy.cluster.hierarchy.linkage(method="average")``.

    Args:
        nodes: n nodes, which this function overwrites.
        threshold: mean similarity below which two clusters are not joined.
        must: pairs of nodes to join first.

    Returns:
        (n,) int64, the lowest node in the cluster of each node.

    Raises:
        InputError: a pair in ``must`` is forbidden.
    """
    clusters = _Clusters(nodes, threshold)
    for one, other in must:
        a, b = int(clusters.labels[one]), int(clusters.labels[other])
        if a != b and clusters.are_apart(a, b):
            raise InputError("two tracklets that must be linked cannot be one person; undo a merge")
        if a != b:
            clusters.join(a, b)
    # The heap has the best candidate of each cluster. The mean similarity to a joined cluster lies between the means to
    # its two parts. An outdated entry is therefore an upper bound of the true value, which is computed on popping it.
    heap = [entry for a in np.unique(clusters.labels).tolist() if (entry := clusters.candidate(a))]
    heapq.heapify(heap)
    while heap:
        _, a, b, joins_a, joins_b = heapq.heappop(heap)
        if clusters.labels[a] != a:
            continue
        if (joins_a, joins_b) == (clusters.joins[a], clusters.joins[b]):
            a = clusters.join(a, b)
        if entry := clusters.candidate(a):
            heapq.heappush(heap, entry)
    return clusters.labels


def _neighbours(nodes: Nodes, threshold: float) -> list[np.ndarray]:
    """For each node, list the nodes that may be joined with it and are similar enough."""
    means = (nodes.sums / nodes.weights[:, None]).astype(np.float32)
    near: list[np.ndarray] = []
    for rows in _blocks(len(means)):
        reached = (means[rows] @ means.T >= threshold - MARGIN) & ~nodes.forbidden[rows]
        near += [np.flatnonzero(row) for row in reached]
    return near


def link(
    tracklets: Tracklets,
    least: np.ndarray,
    threshold: float | None = None,
    false_accept_rate: float = 0.002,
    earlier: Tracklets | None = None,
    identities: np.ndarray | None = None,
    *,
    must: Sequence[Sequence[int]] = (),
    cannot: IndexPairs = (),
    strangers: IndexPairs = (),
) -> tuple[np.ndarray, float]:
    """Link tracklets with each other and with earlier identities, but never join two earlier identities.

    Travel times between cameras are learned from a first linking, see :func:`lreid.link.constraints.learn_travel`.

    Args:
        tracklets: N tracklets.
        least: (C, C) travel times, see :func:`lreid.link.constraints.possible`.
        threshold: mean cosine similarity from which two clusters are one identity. With None, the threshold is
            calibrated on impostor pairs, which are tracklets that cannot be one person because of their times.
        false_accept_rate: share of impostor pairs that may reach a calibrated threshold, in [0, 1).
        earlier: M tracklets that were linked before.
        identities: (M,) int64 identities of the earlier tracklets, in which every number from 0 to K - 1 occurs.
        must: groups of ``tracklets`` that show one person, whatever their times are.
        cannot: pairs of ``tracklets`` that show two different people.
        strangers: pairs of a tracklet and an earlier identity that show two different people.

    Returns:
        (N,) int64 identities of the tracklets, and the threshold of this linking. The earlier identities have the
        numbers 0 to K - 1; new identities have higher numbers, in the order of the tracklets.

    Raises:
        InputError: there are too many tracklets and identities, there are too few impostor pairs to calibrate a
            threshold, or ``must`` contradicts other constraints.
    """
    earlier = tracklets[:0] if earlier is None else earlier
    identities = np.zeros(0, np.int64) if identities is None else identities
    nodes = _nodes(tracklets, earlier, identities)
    count = len(nodes.weights) - len(tracklets)  # number of earlier identities
    if threshold is None:
        from lreid.retrieval.protocols import threshold_for  # loads torch

        scores = impostors(tracklets, learn_travel(earlier, identities, least))
        if len(scores) < MIN_IMPOSTORS:
            raise InputError(
                f"{counted(len(scores), 'pair')} of tracklets cannot be one person because of their times, too few to "
                f"calibrate a threshold ({MIN_IMPOSTORS} are needed); pass --threshold"
            )
        strict, threshold = (threshold_for(scores, share * false_accept_rate) for share in (STRICT, 1))
    else:
        strict = threshold
    _forbid(nodes, tracklets, earlier, identities, least)
    roots = agglomerate(copy.deepcopy(nodes), strict)[count:]
    least = learn_travel(earlier.followed_by(tracklets), np.concatenate([identities, roots]), least)
    _forbid(nodes, tracklets, earlier, identities, least)
    groups = [count + np.array(group, dtype=np.int64) for group in must]
    for group in groups:  # a correction by the user overrides time constraints
        nodes.forbidden[np.ix_(group, group)] = False
    for one, other in [*((a, count + b) for a, b in cannot), *strangers]:
        nodes.forbidden[count + one, other] = nodes.forbidden[other, count + one] = True
    roots = agglomerate(nodes, threshold, [pair for group in groups for pair in itertools.pairwise(group)])[count:]
    new = {root: count + place for place, root in enumerate(dict.fromkeys(roots[roots >= count].tolist()))}
    return np.array([new.get(root, root) for root in roots.tolist()], dtype=np.int64), threshold


def impostors(tracklets: Tracklets, least: np.ndarray) -> np.ndarray:
    """Return similarities (P,) of impostor pairs: two tracklets that cannot be one person because of their times."""
    scores = [np.zeros(0, np.float32)]
    for rows in _blocks(len(tracklets)):
        impossible = ~possible(tracklets[rows], tracklets, least)
        impossible &= np.arange(len(tracklets)) > np.arange(len(tracklets))[rows, None]  # each pair once
        scores.append((tracklets.features[rows] @ tracklets.features.T)[impossible])
    return np.concatenate(scores)


def _nodes(tracklets: Tracklets, earlier: Tracklets, identities: np.ndarray) -> Nodes:
    """Create one node for each earlier identity, then one for each tracklet, with no pair forbidden yet."""
    weights = np.bincount(identities) if len(identities) else np.zeros(0)
    count = len(weights) + len(tracklets)
    if count > MAX_NODES:
        raise InputError(
            f"{len(tracklets)} tracklets and {len(weights)} identities are more than {MAX_NODES} together; link one "
            "day at a time, or pass --online"
        )
    sums = np.zeros((len(weights), tracklets.features.shape[1]))
    np.add.at(sums, identities, earlier.features)
    sums = np.concatenate([sums, tracklets.features.astype(np.float64)])
    return Nodes(sums, np.concatenate([weights, np.ones(len(tracklets))]), np.zeros((count, count), dtype=bool))


def _forbid(nodes: Nodes, tracklets: Tracklets, earlier: Tracklets, identities: np.ndarray, least: np.ndarray) -> None:
    """Forbid pairs that cannot be one person because of their times, and all pairs of earlier identities."""
    count, forbidden = len(nodes.weights) - len(tracklets), nodes.forbidden
    forbidden[:count, :count] = True
    for rows in _blocks(len(tracklets)):
        block = forbidden[count:][rows]  # a view
        block[:, count:] = ~possible(tracklets[rows], tracklets, least)
        new, old = np.nonzero(~possible(tracklets[rows], earlier, least))
        block[new, identities[old]] = True
        forbidden[:count, count:][:, rows] = block[:, :count].T
    np.fill_diagonal(forbidden, False)


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, count, ROWS_AT_ONCE)]
