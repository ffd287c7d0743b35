"""Link tracklets online: soon after a tracklet ends, assign it to an earlier identity or to a new one."""

import numpy as np

from lreid.link.constraints import possible
from lreid.link.tracklets import Tracklets
from lreid.utils.extras import Extra

optimize = Extra("scipy.optimize", "link")


class OnlineLinker:
    """Assign tracklets to identities. An identity is stored as the mean feature of its tracklets.

    Args:
        least: (C, C) travel times, see :func:`lreid.link.constraints.possible`.
        threshold: a tracklet gets an identity only if its mean cosine similarity to the tracklets of the identity is at
            least this value.
        earlier: M tracklets that were linked before.
        identities: (M,) int64 identities of the earlier tracklets, from 0.
        room: maximum number of tracklets to add.
    """

    def __init__(
        self, least: np.ndarray, threshold: float, earlier: Tracklets, identities: np.ndarray, room: int
    ) -> None:
        self.least, self.threshold = least, threshold
        self.count = int(identities.max()) + 1 if len(identities) else 0  # number of identities
        self._seen = len(earlier)
        self._means = np.zeros((self.count + room, earlier.features.shape[1]), np.float32)
        self._weights = np.zeros(self.count + room, np.float32)
        # Copies of the arrays, with room for more.
        cameras, starts, ends, self._identities = (
            np.concatenate([each, np.zeros(room, each.dtype)])
            for each in (earlier.cameras, earlier.starts, earlier.ends, identities.astype(np.int64))
        )
        self._tracklets = Tracklets(cameras, starts, ends, np.zeros((len(cameras), 0), np.float32))
        np.add.at(self._means, identities, earlier.features)
        self._weights[: self.count] = np.bincount(identities, minlength=self.count)
        self._means /= self._weights[:, None].clip(1)

    def add(self, batch: Tracklets) -> np.ndarray:
        """Assign tracklets by the Hungarian method, in rounds that give each identity at most one tracklet.

        Args:
            batch: n tracklets that ended within the allowed delay.

        Returns:
            (n,) int64 identities of the tracklets; new identities get the next numbers.
        """
        labels = np.full(len(batch), -1, dtype=np.int64)
        while (left := np.flatnonzero(labels < 0)).size:
            scores = self._scores(batch[left])  # (l, I)
            near = np.flatnonzero((scores >= self.threshold).any(0))  # only these identities can be assigned
            rows, columns = optimize.linear_sum_assignment(scores[:, near].clip(-2), maximize=True)
            taken = [(r, near[c]) for r, c in zip(rows, columns, strict=True) if scores[r, near[c]] >= self.threshold]
            for row, identity in taken or [(0, self.count)]:
                labels[left[row]] = identity
                self._join(batch[left[row] : left[row] + 1], int(identity))
        return labels

    def add_in_steps(self, tracklets: Tracklets, delay: float) -> np.ndarray:
        """Assign tracklets in the order of their ends, in batches of ``delay`` seconds; see :meth:`add`."""
        labels = np.zeros(len(tracklets), np.int64)
        step = np.floor(tracklets.ends / delay) if delay > 0 else tracklets.ends
        for each in np.unique(step):
            labels[step == each] = self.add(tracklets[np.flatnonzero(step == each)])
        return labels

    def _scores(self, batch: Tracklets) -> np.ndarray:
        """Compute mean similarities (n, I) float32 of tracklets to identities; -inf if times do not allow a link."""
        scores = batch.features @ self._means[: self.count].T
        earlier = self._tracklets[: self._seen]
        horizon = max(float(self.least.max(initial=0)), 0.0)
        recent = np.flatnonzero(earlier.ends >= batch.starts.min() - horizon)
        rows, old = np.nonzero(~possible(batch, earlier[recent], self.least))
        scores[rows, self._identities[recent[old]]] = -np.inf
        return scores

    def _join(self, one: Tracklets, identity: int) -> None:
        self.count = max(self.count, identity + 1)
        weight = self._weights[identity]
        self._means[identity] += (one.features[0] - self._means[identity]) / (weight + 1)
        self._weights[identity] += 1
        for column, value in (("cameras", one.cameras), ("starts", one.starts), ("ends", one.ends)):
            getattr(self._tracklets, column)[self._seen] = value[0]
        self._identities[self._seen] = identity
        self._seen += 1
