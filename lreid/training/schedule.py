"""The learning rate over the epochs of a task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["exponential", "cosine"]


@dataclass(frozen=True)
class Schedule:
    """The learning rate in every epoch of a task: ``base`` times :func:`decay_factor`, whose options these are."""

    base: float
    start: float = 0.5
    end: float = 0.005
    warmup: int = 0
    shape: Shape = "exponential"

    def rate(self, epoch: int, epochs: int) -> float:
        """In an epoch, from 0, of so many."""
        return self.base * decay_factor(
            epoch, epochs, start=self.start, end=self.end, warmup=self.warmup, shape=self.shape
        )


def decay_factor(
    epoch: int, epochs: int, *, start: float, end: float, warmup: int = 0, shape: Shape = "exponential"
) -> float:
    """What the base rate is multiplied by: 1 at first, then a decay; every task starts anew.

    ``exponential`` is that of DwoPP's official code, ``end ** ((e + 1 - S) / (epochs + 1 - S))`` in epoch e (from 1),
    S = ``start * epochs``, which arrives at ``end`` in the last one; an only epoch is the last one. The paper prints a
    slightly slower decay.
    ``cosine`` falls from 1 in epoch S to almost ``end``, as in Co2L's and CCLIS's official code (there S = 0).

    Args:
        epoch: from 0.
        epochs: of the task.
        start: share of the epochs at the full rate, in [0, 1].
        end: factor at the end.
        warmup: the first so many epochs rise linearly from a hundredth, as in BoT.
        shape: of the decay.
    """
    first = start * epochs
    rise = 1.0 if epoch >= warmup else 0.01 + 0.99 * epoch / warmup
    if epoch + 1 < first or start == 1:
        return rise
    if shape == "cosine":
        done = (epoch + 1 - first) / max(epochs - first, 1)
        return rise * (end + (1 - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2)
    return rise * end ** ((epoch + 2 - first) / (epochs + 1 - first))
