"""A memory that is filled during training, batch by batch, and does not depend on tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.memory.exemplars import ExemplarStore

POLICIES = ("reservoir", "fifo", "random", "scored")  # that ask for no labels


class StreamMemory(ExemplarStore):
    """Keeps some of the images of a stream by one of the policies below.

    * ``reservoir``: every image of the stream is kept with equal probability (Vitter, ACM TOMS 1985, Algorithm R),
      as in ER, ER-ACE and ER-AML; however the stream is cut into batches and whatever is drawn in between, the same
      images are kept;
    * ``fifo``: the newest images;
    * ``random``: a random choice of those kept and those that come in, all alike; old images fade away;
    * ``scored``: of those kept and those that come in the ones with the highest scores, ``extras["scores"]``;
    * ``balanced``: as many of one identity as of another: once the memory is full, an image of an identity that has
      fewer than others replaces a random one of those that have most (GDumb, Prabhu et al., ECCV 2020).

    ``scored``, ``fifo`` and ``random`` are those of Contrast Scoring ("Enabling Efficient On-Device Self-Supervised
    Contrastive Learning by Data Selection", Equations 1 and 2 and the baselines of Section 4.1). The paper does not say
    which of equal scores stay: here those that came first.

    Args:
        budget: images in all.
        policy: see above.
        seed: seed of all random choices.

    Attributes:
        images, labels, extras: see :class:`~lreid.memory.ExemplarStore`; in no order. Two extras are the memory's own:
            ``numbers``, the position of an image in the stream, and ``entered``, the number of the :meth:`add`
            that brought it, both from 0.
        seen: images of the stream so far.
        steps: calls of :meth:`add` so far.

    Raises:
        ValueError: unknown policy, or a ``budget`` below 0.
    """

    of_stream = True

    def __init__(self, budget: int, policy: str = "reservoir", *, seed: int = 0) -> None:
        super().__init__(budget)
        if policy not in (*POLICIES, "balanced"):
            raise ValueError(f"unknown policy {policy!r}; use {', '.join(POLICIES)} or balanced")
        self.policy, self.seen, self.steps = policy, 0, 0
        self._random = np.random.default_rng(seed)  # of what stays
        self._draws = np.random.default_rng([seed, 1])

    @property
    def ages(self) -> np.ndarray:
        """Steps (n,) int64 since the images came; 1 for those of the last :meth:`add`."""
        entered = self.extras.get("entered", np.empty(0))
        return self.steps - entered.astype(np.int64)

    def due(self, interval: int) -> np.ndarray:
        """Images to score again before the next :meth:`add`, by lazy scoring (Contrast Scoring, Equations 5 and 6).

        The paper does not say whether an image is 0 or 1 step old when it is first in the memory. Here it is 1, since
        it was scored when it came. So it is scored again after ``interval`` steps, and with 1 in every step.

        Args:
            interval: steps between two scores of an image, 1 or more.

        Returns:
            Rows (k,) whose age is a multiple of ``interval``; write their scores into ``extras["scores"]``.
        """
        return np.flatnonzero(self.ages % interval == 0)

    def add(self, images: Sequence[np.ndarray], labels: np.ndarray, **extras: np.ndarray) -> None:
        """Adds the next images of the stream that the policy keeps.

        Args:
            images: m images (H, W, 3) uint8, or :class:`~lreid.memory.ImagePaths`; only those kept are read.
            labels: (m,) integers.
            extras: further numbers, (m,) or (m, K), by name; K may grow. NaN for an image that came without.

        Raises:
            ValueError: images of another size or kind than before, or the policy ``scored`` without scores.
        """
        count = len(labels)
        extras |= {
            "numbers": self.seen + np.arange(count, dtype=np.float64),
            "entered": np.full(count, self.steps, np.float64),
        }
        if self.policy == "scored" and "scores" not in extras:
            raise ValueError("the policy scored needs scores (m,)")
        if self.policy == "reservoir":
            places, rows = self._reservoir(count)
        elif self.policy == "balanced":
            places, rows = self._balanced(np.asarray(labels))
        else:
            places, rows = self._ordered(count, extras)
        self._write(places, images, np.asarray(labels), rows, extras)
        self.seen += count
        self.steps += 1

    def draw(self, count: int, *, each: int = 0, exclude: Sequence[int] | np.ndarray = ()) -> np.ndarray:
        """Draws random images without replacement.

        Args:
            count: number of images; if there are fewer, all are returned.
            each: draw identities, and at most this number of images of each; 0 draws images.
            exclude: labels to exclude, for instance those of the current task.

        Returns:
            Rows (k,) int64 of ``images``, ``labels`` and ``extras``.
        """
        rows = np.flatnonzero(~np.isin(self.labels, exclude))
        if each:
            rows = self._draws.permutation(rows)
            blocks = [rows[self.labels[rows] == label][:each] for label in np.unique(self.labels[rows])]
            chosen = [blocks[number] for number in self._draws.permutation(len(blocks))]
            return np.concatenate([rows[:0], *chosen])[:count]
        return rows if len(rows) <= count else self._draws.choice(rows, count, replace=False)

    def state_dict(self) -> dict[str, Any]:
        """Images, labels and extras, how much was seen, and both generators."""
        return super().state_dict() | {
            "seen": self.seen,
            "steps": self.steps,
            "random": self._random.bit_generator.state,
            "draws": self._draws.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`."""
        super().load_state_dict(state)
        self.seen, self.steps = state["seen"], state["steps"]
        self._random.bit_generator.state = state["random"]
        self._draws.bit_generator.state = state["draws"]

    def _reservoir(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions (k,) that are refilled, and the images (k,) that come there."""
        numbers = self.seen + np.arange(count)
        places = (self._random.random(count) * (numbers + 1)).astype(np.int64)  # uniform in [0, number]
        places = np.where(numbers < self.budget, numbers, places)
        # Of two images of this batch for the same position the later one stays.
        last = {place: row for row, place in enumerate(places) if place < self.budget}
        return np.array(list(last), np.int64), np.array(list(last.values()), np.int64)

    def _balanced(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`_reservoir`, for the labels (m,) that come in."""
        stored = self.labels.tolist()
        last: dict[int, int] = {}
        for row, label in enumerate(labels.tolist()):
            if len(stored) < self.budget:
                stored.append(label)
                last[len(stored) - 1] = row
                continue
            classes, counts = np.unique(stored, return_counts=True)
            most = classes[counts == counts.max()] if len(stored) else classes
            if len(most) and counts[classes == label].sum() < counts.max():
                place = int(self._random.choice(np.flatnonzero(np.isin(stored, most))))
                stored[place], last[place] = label, row
        return np.array(list(last), np.int64), np.array(list(last.values()), np.int64)

    def _ordered(self, count: int, extras: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`_reservoir`; keeps the first images of an order of all, those kept and those that come in."""
        here = len(self)
        if here + count <= self.budget:
            return here + np.arange(count), np.arange(count)

        def of_all(name: str) -> np.ndarray:
            return np.concatenate([self.extras.get(name, np.empty(0)), extras[name]])  # (here + count,)

        if self.policy == "fifo":
            order = np.argsort(-of_all("numbers"))
        elif self.policy == "random":
            order = self._random.permutation(here + count)
        else:
            order = np.lexsort((of_all("numbers"), -of_all("scores")))  # by score, of equal ones the oldest
        stays = np.zeros(here + count, bool)
        stays[order[: self.budget]] = True
        rows = np.flatnonzero(stays[here:])
        places = np.concatenate([np.flatnonzero(~stays[:here]), np.arange(here, self.budget)])
        return places, rows
