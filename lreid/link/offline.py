"""Link all tracklets at once: agglomerative clustering with average linkage that never joins what cannot be one person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lreid.errors import InputError
from lreid.link.constraints import learn_travel, possible
from lreid.link.tracklets import Tracklets
from lreid.retrieval.open_set import threshold_for

BLOCK = 512  # rows of the matrix of similarities that are worked on at once
MOST = 30_000  # nodes; their similarities take 3.6 GB
FEWEST = 200  # impostor pairs that set a threshold
STRICT = 0.1  # share of the false accept rate at which tracklets are linked to learn travel times
NEVER = np.float32(-np.inf)
Pairs = Iterable[tuple[int, int]]


def agglomerate(similarity: np.ndarray, weights: np.ndarray, threshold: float, must: Pairs = ()) -> np.ndarray:
    """Average linkage (UPGMA) on similarities, down to a threshold.

    The similarity of two clusters is the mean over their pairs, so one pair of ``-inf`` keeps two clusters apart for
    good. The result is that of ``scipy.cluster.hierarchy.linkage(method="average")``, which takes neither weights nor
    such pairs.

    Args:
        similarity: (n, n) float32, symmetric; it is overwritten.
        weights: (n,) float64: how many tracklets each node stands for.
        threshold: clusters are joined while the largest similarity reaches it.
        must: pairs of nodes that are one cluster, joined first.

    Returns:
        (n,) int64: for each node the lowest node of its cluster.

    Raises:
        InputError: ``must`` would join what cannot be.
    """
    count, weights, labels = len(similarity), weights.astype(np.float64), np.arange(len(similarity))
    np.fill_diagonal(similarity, NEVER)

    def join(a: int, b: int) -> None:
        share = np.float32(weights[a] / (weights[a] + weights[b]))
        row = share * similarity[a] + (1 - share) * similarity[b]
        row[[a, b]] = NEVER
        similarity[a], similarity[:, a] = row, row
        similarity[b], similarity[:, b] = NEVER, NEVER
        weights[a] += weights[b]
        labels[labels == b] = a

    for one, other in must:
        a, b = sorted((int(labels[one]), int(labels[other])))
        if a != b:
            if similarity[a, b] == NEVER:
                raise InputError("two tracklets that must be linked cannot be one person")
            join(a, b)
    if not count:
        return labels
    nearest = similarity.argmax(1)
    best = similarity[np.arange(count), nearest]
    while best[(top := int(best.argmax()))] >= threshold:
        a, b = sorted((top, int(nearest[top])))
        join(a, b)
        stale = np.flatnonzero((nearest == a) | (nearest == b))  # a mean never exceeds both of what it is made of
        for row in {a, b, *stale.tolist()}:
            nearest[row] = similarity[row].argmax()
            best[row] = similarity[row, nearest[row]]
    return labels


@dataclass(frozen=True)
class Rule:
    """How tracklets are compared.

    Attributes:
        threshold: mean cosine similarity from which two clusters are one identity; None calibrates it on pairs of the
            tracklets that time keeps apart.
        false_accept_rate: share of such pairs that may reach it, in [0, 1).
        learn: learn travel times between cameras.
    """

    threshold: float | None = None
    false_accept_rate: float = 0.002
    learn: bool = True


@dataclass(frozen=True)
class Links:
    """What :func:`link` found.

    Attributes:
        labels: (N,) int64: the known identity that a tracklet joins, from 0 to K - 1, or a new one, from K on, in the
            order of the tracklets.
        least: (C, C) travel times that held, see :func:`lreid.link.constraints.possible`.
        threshold: that held.
    """

    labels: np.ndarray
    least: np.ndarray
    threshold: float


def link(
    tracklets: Tracklets,
    least: np.ndarray,
    rule: Rule = Rule(),
    *,
    known: Tracklets | None = None,
    identities: np.ndarray | None = None,
    must: Pairs = (),
    cannot: Pairs = (),
) -> Links:
    """Links tracklets with each other and with known identities, which are never joined with each other.

    Args:
        tracklets: N of them.
        least: (C, C) travel times, see :func:`lreid.link.constraints.possible`.
        rule: see :class:`Rule`.
        known: M tracklets that were linked before.
        identities: (M,) int64, their identities, each number from 0 to K - 1.
        must, cannot: pairs of ``tracklets`` that are, or are not, of one person.

    Raises:
        InputError: there are too many nodes, too few pairs to calibrate a threshold, or ``must`` cannot hold.
    """
    known = known or tracklets[:0]
    identities = np.zeros(0, np.int64) if identities is None else identities
    similarity, weights = _similarities(tracklets, known, identities)
    known_count = len(weights) - len(tracklets)
    threshold = rule.threshold
    if threshold is None:
        threshold = calibrate(tracklets, least, rule.false_accept_rate)
    if rule.learn:
        strict = threshold
        if rule.threshold is None:
            strict = calibrate(tracklets, least, STRICT * rule.false_accept_rate)
        labels = agglomerate(_allowed(similarity.copy(), tracklets, known, identities, least), weights, strict)
        least = learn_travel(tracklets, labels[known_count:], least)
    allowed = _allowed(similarity, tracklets, known, identities, least)
    for one, other in cannot:
        allowed[known_count + one, known_count + other] = allowed[known_count + other, known_count + one] = NEVER
    shifted = [(known_count + one, known_count + other) for one, other in must]
    roots = agglomerate(allowed, weights, threshold, shifted)[known_count:]
    new = {root: known_count + place for place, root in enumerate(dict.fromkeys(roots[roots >= known_count].tolist()))}
    labels = np.array([new.get(root, root) for root in roots.tolist()], dtype=np.int64)
    return Links(labels, least, threshold)


def calibrate(tracklets: Tracklets, least: np.ndarray, false_accept_rate: float) -> float:
    """A threshold from pairs of tracklets that time keeps apart: they are impostors, and nobody has to label them.

    Args:
        tracklets: N of them.
        least: (C, C) travel times.
        false_accept_rate: share of these pairs that may reach the threshold, in [0, 1).

    Raises:
        InputError: there are fewer than ``FEWEST`` such pairs.
    """
    scores = []
    for rows in _blocks(len(tracklets)):
        apart = ~possible(tracklets[rows], tracklets, least)
        apart &= np.arange(len(tracklets)) > np.arange(len(tracklets))[rows, None]  # each pair once
        scores.append((tracklets.features[rows] @ tracklets.features.T)[apart])
    impostors = np.concatenate(scores) if scores else np.zeros(0, np.float32)
    if len(impostors) < FEWEST:
        raise InputError(
            f"{len(impostors)} pairs of tracklets are seen at once by one camera, too few to calibrate a threshold on "
            f"({FEWEST}); give --threshold"
        )
    return threshold_for(impostors, false_accept_rate)


def _similarities(tracklets: Tracklets, known: Tracklets, identities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean similarities (n, n) float32 of nodes, known identities first, and how many tracklets each stands for."""
    weights = np.bincount(identities) if len(identities) else np.zeros(0)
    if len(weights) + len(tracklets) > MOST:
        raise InputError(
            f"{len(tracklets)} tracklets and {len(weights)} identities: at most {MOST} at once; link a day at a time, "
            "or pass --online"
        )
    sums = np.zeros((len(weights), tracklets.features.shape[1]), np.float32)
    np.add.at(sums, identities, known.features)
    nodes = np.concatenate([sums / weights[:, None].clip(1), tracklets.features]).astype(np.float32)
    return nodes @ nodes.T, np.concatenate([weights, np.ones(len(tracklets))])


def _allowed(
    similarity: np.ndarray, tracklets: Tracklets, known: Tracklets, identities: np.ndarray, least: np.ndarray
) -> np.ndarray:
    """The similarities with ``NEVER`` where time, or being two known identities, keeps nodes apart."""
    count = len(similarity) - len(tracklets)
    similarity[:count, :count] = NEVER
    for rows in _blocks(len(tracklets)):
        new = similarity[count:][rows]  # a view
        new[:, count:][~possible(tracklets[rows], tracklets, least)] = NEVER
        apart, old = np.nonzero(~possible(tracklets[rows], known, least))
        new[apart, identities[old]] = NEVER
        similarity[:count, count:][:, rows] = new[:, :count].T
    return similarity


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]
