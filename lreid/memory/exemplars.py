"""A memory of images with a budget in all, shared evenly by the identities seen so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lreid.memory.selection import select


class ExemplarMemory:
    """Keeps pixels, so that the files of past tasks may be deleted.

    With a budget of M images and C identities seen so far, each keeps ``M // C`` images; those of earlier tasks
    shrink to their best ones (iCaRL, CVPR 2017, Algorithms 4 and 5). Over a long sequence that falls below the two
    images that an episode or a triplet needs. Then each keeps ``least`` images, and only ``M // least``
    identities are kept, a uniform sample of all seen: every identity has a fixed random number, which follows
    from the seed and its label, and those with the smallest numbers stay. The BMVC 2022 paper on DwoPP, which
    gives every method 500 exemplars in all, publishes neither the balance nor the choice.

    Args:
        budget: images in all.
        least: images of an identity that are worth keeping, as far as it has so many.
        selection: which images of an identity are kept, see :func:`~lreid.memory.select`.
        seed: of everything random.

    Attributes:
        images: (n, H, W, 3) uint8, RGB; identity by identity, the best image of each first.
        labels: (n,) int64, class labels.
        seen: identities seen so far, kept or not.

    Raises:
        ValueError: ``budget`` is below 0 or ``least`` below 1.
    """

    def __init__(self, budget: int, *, least: int = 2, selection: str = "herding", seed: int = 0) -> None:
        if budget < 0 or least < 1:
            raise ValueError(f"budget must be 0 or more and least 1 or more, got {budget} and {least}")
        self.budget, self.least, self.selection, self.seed = budget, least, selection, seed
        self.images = np.empty((0, 0, 0, 3), np.uint8)
        self.labels = np.empty(0, np.int64)
        self.seen = 0

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, images: Sequence[np.ndarray], labels: np.ndarray, features: np.ndarray) -> None:
        """Takes the best images of new identities and makes room for them.

        Args:
            images: n images (H, W, 3) uint8; only the chosen ones are looked at.
            labels: (n,) integers, of identities that were not added before.
            features: (n, D), by the model that has just learned them.

        Raises:
            ValueError: an identity is here already.
        """
        new = np.unique(labels)
        if np.isin(new, self.labels).any():
            raise ValueError(f"identities {np.intersect1d(new, self.labels)} are in the memory already")
        self.seen += len(new)
        quota = max(self.budget // max(self.seen, 1), self.least)
        identities = sorted([*np.unique(self.labels), *new], key=self._rank)[: self.budget // quota]
        pixels, kept = [], []
        for label in sorted(identities):
            rows, source = np.flatnonzero(self.labels == label)[:quota], self.images
            if len(rows) == 0:
                rows, source = np.flatnonzero(labels == label), images
                rows = rows[select(features[rows], quota, self.selection, (self.seed, int(label)))]
            pixels += [source[row] for row in rows]
            kept += [label] * len(rows)
        if pixels:
            self.images, self.labels = np.stack(pixels), np.array(kept, np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "images": torch.from_numpy(self.images),
            "labels": torch.from_numpy(self.labels),
            "seen": self.seen,
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self.images, self.labels = state["images"].numpy(), state["labels"].numpy()
        self.seen, self.seed = state["seen"], state["seed"]

    def _rank(self, label: int) -> float:
        """The number of an identity that decides whether it stays, in [0, 1)."""
        return np.random.default_rng([self.seed, int(label), 1]).random()
