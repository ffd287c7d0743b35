"""A memory that is filled batch by batch during training and does not depend on tasks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.memory.exemplars import ExemplarStore

POLICIES = ("reservoir", "fifo", "random", "scored")  # policies that need no labels


class StreamMemory(ExemplarStore):
    """Memory of some images of a stream, which one of these policies selects.

    * ``reservoir``: every image of the stream is kept with the same probability (Vitter, ACM TOMS 1985, Algorithm R),
      as in ER, ER-ACE and ER-AML. The selection does not depend on the batch size or on calls of :meth:`draw`;
    * ``fifo``: the newest images are kept;
    * ``random``: stored and incoming images are kept with equal probability, so old images gradually disappear;
    * ``scored``: the images with the highest ``extras["scores"]`` among the stored and the incoming images are kept;
    * ``balanced``: all identities have about the same number of images (GDumb, Prabhu et al., ECCV 2020). If the memory
      is full, an incoming image replaces a random image of the identity that has the most images. An incoming image of
      that identity is not stored;
    * ``greedy``: as in GSS (Aljundi et al., NeurIPS 2019, Algorithm 2). If the memory is full, an incoming image with
      ``extras["scores"]`` c below 1 may replace a stored image. The stored image is drawn with a probability in
      proportion to its score s, and it is replaced with the probability s / (s + c).

    The policy ``scored`` is Contrast Scoring ("Enabling Efficient On-Device Self-Supervised Contrastive Learning by
    Data Selection", Equations 1 and 2). The policies ``fifo`` and ``random`` are baselines in Section 4.1 of Contrast
    Scoring's paper. If two images have equal scores, lreid keeps the earlier image; Contrast Scoring's paper does not
    define this case.

    Args:
        budget: maximum number of images.
        policy: name of one of the policies.
        seed: seed of all random choices.

    Attributes:
        images, labels, extras: see :class:`~lreid.memory.ExemplarStore`; images have no order. The memory adds two
            extras, which count from 0. ``numbers`` is the position of an image in the stream; ``entered`` is the number
            of the :meth:`add` call that stored it.
        seen: number of images of the stream so far.
        steps: number of calls of :meth:`add` so far.
    """

    of_stream = True

    def __init__(self, budget: int, policy: str = "reservoir", *, seed: int = 0) -> None:
        super().__init__(budget)
        if policy not in (*POLICIES, "balanced", "greedy"):
            raise ValueError(f"unknown policy {policy!r}; use {', '.join(POLICIES)}, balanced or greedy")
        self.policy, self.seen, self.steps = policy, 0, 0
        self._random = np.random.default_rng(seed)  # for the policies; draw() uses _draws
        self._draws = np.random.default_rng([seed, 1])

    @property
    def ages(self) -> np.ndarray:
        """Number of :meth:`add` calls (n,) int64 since each image was added, including the call that added it."""
        entered = self.extras.get("entered", np.empty(0))
        return self.steps - entered.astype(np.int64)

    def due(self, interval: int) -> np.ndarray:
        """Find images whose scores are to be computed again before the next :meth:`add` (Equations 5 and 6).

        Contrast Scoring's paper does not say whether a new image in the memory has age 0 or 1. In lreid, a new image
        has age 1, because its score was computed before it was stored. The score of an image is therefore computed
        again every ``interval`` steps.

        Args:
            interval: number of steps after which a score is computed again, 1 or more.

        Returns:
            Rows (k,) of images whose age is a multiple of ``interval``; the caller writes new scores to
            ``extras["scores"]``.
        """
        return np.flatnonzero(self.ages % interval == 0)

    def add(self, images: Sequence[np.ndarray], labels: np.ndarray, **extras: np.ndarray) -> None:
        """Add the next images of the stream; the policy decides which images are kept.

        Args:
            images: m images (H, W, 3) uint8, or :class:`~lreid.memory.ImagePaths`; only images that are kept are read.
            labels: (m,) integers.
            extras: additional values by name, (m,) or (m, K); K may grow. Images without a value get NaN.
        """
        count = len(labels)
        extras |= {"numbers": self.seen + np.arange(float(count)), "entered": np.full(count, float(self.steps))}
        if self.policy == "scored" and "scores" not in extras:
            raise ValueError("the policy scored needs scores (m,)")
        if self.policy == "reservoir":
            places, rows = self._reservoir(count)
        elif self.policy == "greedy":
            places, rows = self._greedy(extras["scores"])
        elif self.policy == "balanced":
            places, rows = self._balanced(np.asarray(labels))
        else:
            places, rows = self._ordered(count, extras)
        self._write(places, images, np.asarray(labels), rows, extras)
        self.seen += count
        self.steps += 1

    def draw(self, count: int, *, each: int = 0, exclude: Sequence[int] | np.ndarray = ()) -> np.ndarray:
        """Draw random images without replacement.

        Args:
            count: number of images to draw, if there are enough.
            each: if above 0, draw random identities and up to ``each`` images of each identity; 0 draws images
                regardless of identity.
            exclude: labels to exclude, for example those of the current task.

        Returns:
            Row numbers (k,) int64 of ``images``, ``labels`` and ``extras``.
        """
        rows = np.flatnonzero(~np.isin(self.labels, exclude))
        if each:
            rows = self._draws.permutation(rows)
            blocks = [rows[self.labels[rows] == label][:each] for label in np.unique(self.labels[rows])]
            chosen = [blocks[number] for number in self._draws.permutation(len(blocks))]
            return np.concatenate([rows[:0], *chosen])[:count]
        return rows if len(rows) <= count else self._draws.choice(rows, count, replace=False)

    def state_dict(self) -> dict[str, Any]:
        """Return images, labels and extras, the numbers of images and steps so far, and both generators."""
        return super().state_dict() | {
            "seen": self.seen,
            "steps": self.steps,
            "random": self._random.bit_generator.state,
            "draws": self._draws.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.seen, self.steps = state["seen"], state["steps"]
        self._random.bit_generator.state = state["random"]
        self._draws.bit_generator.state = state["draws"]

    def _reservoir(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the memory positions (k,) to overwrite, and the rows (k,) of incoming images to write there."""
        numbers = self.seen + np.arange(count)
        places = (self._random.random(count) * (numbers + 1)).astype(np.int64)  # uniform in [0, number]
        places = np.where(numbers < self.budget, numbers, places)
        # If two images of this batch have the same position, the later one is stored.
        last = {place: row for row, place in enumerate(places) if place < self.budget}
        return np.array(list(last), np.int64), np.array(list(last.values()), np.int64)

    def _greedy(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and rows as in :meth:`_reservoir`, for incoming images with scores (m,)."""
        stored = self.extras.get("scores", np.empty(0)).tolist()
        last: dict[int, int] = {}
        for row, score in enumerate(scores.tolist()):
            place = len(stored)
            if place < self.budget:
                stored.append(score)
            elif score >= 1 or not stored:
                continue
            else:
                place = int(self._random.choice(place, p=np.array(stored) / sum(stored)))
                if self._random.random() >= stored[place] / (stored[place] + score):
                    continue
            stored[place], last[place] = score, row
        return np.array(list(last), np.int64), np.array(list(last.values()), np.int64)

    def _balanced(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and rows as in :meth:`_reservoir`, for incoming images with labels (m,)."""
        stored = self.labels.tolist()
        last: dict[int, int] = {}
        for row, label in enumerate(labels.tolist()):
            if len(stored) < self.budget:
                stored.append(label)
                last[len(stored) - 1] = row
                continue
            classes, counts = np.unique(stored, return_counts=True)
            largest = classes[counts == counts.max()] if len(stored) else classes
            if len(largest) and counts[classes == label].sum() < counts.max():
                place = int(self._random.choice(np.flatnonzero(np.isin(stored, largest))))
                stored[place], last[place] = label, row
        return np.array(list(last), np.int64), np.array(list(last.values()), np.int64)

    def _ordered(self, count: int, extras: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Sort all images by the policy and keep the first ones; return positions and rows as in :meth:`_reservoir`."""
        stored = len(self)
        if stored + count <= self.budget:
            return stored + np.arange(count), np.arange(count)

        def of_all(name: str) -> np.ndarray:
            return np.concatenate([self.extras.get(name, np.empty(0)), extras[name]])  # (here + count,)

        if self.policy == "fifo":
            order = np.argsort(-of_all("numbers"))
        elif self.policy == "random":
            order = self._random.permutation(stored + count)
        else:
            order = np.lexsort((of_all("numbers"), -of_all("scores")))  # by score, then from old to new
        stays = np.zeros(stored + count, bool)
        stays[order[: self.budget]] = True
        rows = np.flatnonzero(stays[stored:])
        places = np.concatenate([np.flatnonzero(~stays[:stored]), np.arange(stored, self.budget)])
        return places, rows
