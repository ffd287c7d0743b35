"""A memory with a budget of images in all, shared evenly by the identities seen so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.memory.exemplar_store import ExemplarStore


class ExemplarMemory(ExemplarStore):
    """Keeps the best images of every identity; filled at the end of a task.

    With a budget of M images and C identities seen so far, each keeps ``M // C`` images; those of earlier tasks
    shrink to their best ones (iCaRL, CVPR 2017, Algorithms 4 and 5). Over a long sequence that falls below the two
    images that an episode or a triplet needs. Then each keeps ``least`` images, and only ``M // least``
    identities are kept, a uniform sample of all seen: every identity has a fixed random number, which follows
    from the seed and its label, and those with the smallest numbers stay. The BMVC 2022 paper on DwoPP, which
    gives every method 500 exemplars in all, publishes neither the balance nor the choice.

    With ``fill`` the room that even shares leave is given to identities that have further images, an image at a
    time, those with the smallest numbers first. As long as all identities stay, the whole budget is then used as far
    as there are images, and identities that have enough of them differ by one at most. With ``random`` selection
    this is Co²L's memory (ICCV 2021); its official code rounds the share of every old identity at random and leaves
    the new ones the rest.

    Selection by ``importance`` is that of CCLIS (AAAI 2024): images are drawn by their scores, and at every
    :meth:`add` those in the memory once more, by new scores. ``extras["weights"]`` is the share that an image has of
    the scores of all images of its identity among which it was drawn last, as in the official code. So an identity's
    weights sum to less than 1 where some of these were left out.

    Args:
        budget: images in all.
        least: images of an identity that are worth keeping, as far as it has so many.
        selection: which images of an identity are kept, see :func:`~lreid.memory.select`.
        fill: use the room that even shares leave.
        seed: of everything random.

    Attributes:
        images, labels, extras: see :class:`~lreid.memory.ExemplarStore`; task by task, identity by identity, the best
            image of each first (with ``importance`` in any order).
        seen: identities seen so far, kept or not.

    Raises:
        ValueError: ``budget`` is below 0 or ``least`` below 1.
    """

    def __init__(
        self, budget: int, *, least: int = 2, selection: str = "herding", fill: bool = False, seed: int = 0
    ) -> None:
        if budget < 0 or least < 1:
            raise ValueError(f"budget must be 0 or more and least 1 or more, got {budget} and {least}")
        super().__init__(budget)
        self.least, self.selection, self.fill, self.seed = least, selection, fill, seed
        self.seen = 0

    def add(
        self,
        images: Sequence[np.ndarray],
        labels: np.ndarray,
        values: np.ndarray,
        *,
        kept_scores: np.ndarray | Sequence[float] = (),
    ) -> None:
        """Takes the best images of new identities and makes room for them.

        Args:
            images: n images (H, W, 3) uint8, or :class:`~lreid.memory.ImagePaths`; only the chosen ones are read.
            labels: (n,) integers, of identities that were not added before.
            values: what the images are chosen by: (n, D) features of the model that has just learned them, or with
                ``importance`` (n,) scores, 0 or more.
            kept_scores: with ``importance`` (len(self),), the scores of what is in the memory.

        Raises:
            ValueError: an identity is here already, or there are not as many scores as images.
        """
        from lreid.memory.selection import draw_by_score, importance_weights, select

        labels = np.asarray(labels)
        new = np.unique(labels)
        if np.isin(new, self.labels).any():
            raise ValueError(f"identities {np.intersect1d(new, self.labels)} are in the memory already")
        extras, old_scores = {}, np.asarray(kept_scores)
        if self.selection == "importance":
            weights = importance_weights(old_scores, self.labels)
            extras["weights"] = importance_weights(values, labels)
            self._extras.setdefault("weights", np.empty(self.budget))[: len(self)] = weights
        self.seen += len(new)
        stay, come = [], []  # rows of the memory and of the new images
        for label, count in sorted(self._shares(labels).items()):
            rows = np.flatnonzero(self.labels == label)
            if len(rows) == 0:
                rows = np.flatnonzero(labels == label)
                come += rows[select(values[rows], count, self.selection, (self.seed, label))].tolist()
                continue
            if self.selection == "importance":
                rows = rows[draw_by_score(old_scores[rows], count, (self.seed, label, self.seen))]
            stay += rows[:count].tolist()
        self._keep(np.sort(np.array(stay, np.int64)))
        self._write(np.arange(len(stay), len(stay) + len(come)), images, labels, np.array(come, np.int64), extras)

    def state_dict(self) -> dict[str, Any]:
        """Images, labels and extras, the number of images seen, and the seed."""
        return super().state_dict() | {"seen": self.seen, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self.seen, self.seed = state["seen"], state["seed"]

    def _shares(self, labels: np.ndarray) -> Counter[int]:
        """Images that each identity keeps which stays, of those in the memory and those that come with ``labels``."""
        sizes = Counter(self.labels.tolist()) + Counter(labels.tolist())
        quota = max(self.budget // max(self.seen, 1), self.least)
        identities = sorted(sizes, key=self._rank)[: self.budget // quota]
        if not self.fill:
            return Counter({label: min(quota, sizes[label]) for label in identities})
        # Sorted by its number within its identity, an image at a time is given to each.
        places = sorted(
            (number, rank, label) for rank, label in enumerate(identities) for number in range(sizes[label])
        )
        return Counter(label for _, _, label in places[: self.budget])

    def _rank(self, label: int) -> float:
        """The number of an identity that decides whether it stays, in [0, 1)."""
        return np.random.default_rng([self.seed, label, 1]).random()
