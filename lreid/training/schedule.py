"""The learning rate over the epochs of a task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Shape = Literal["exponential", "cosine", "steps"]


@dataclass(frozen=True)
class Schedule:
    """The learning rate in every epoch: ``base`` times :func:`decay_factor`, whose options these are.

    With ``restarts`` every task has a schedule of its own; without, one goes over the epochs of all tasks.
    """

    base: float
    start: float = 0.5
    end: float = 0.005
    warmup: int = 0
    shape: Shape = "exponential"
    milestones: tuple[int, ...] = ()
    restarts: bool = True

    def rate(self, task: int, epoch: int, epochs: Sequence[int]) -> float:
        """In an epoch, from 0, of a task, from 0, where the tasks have so many epochs."""
        before, total = (0, epochs[task]) if self.restarts else (sum(epochs[:task]), sum(epochs))
        return self.base * decay_factor(
            before + epoch,
            total,
            start=self.start,
            end=self.end,
            warmup=self.warmup,
            shape=self.shape,
            milestones=self.milestones,
        )


def decay_factor(
    epoch: int,
    epochs: int,
    *,
    start: float,
    end: float,
    warmup: int = 0,
    shape: Shape = "exponential",
    milestones: Sequence[int] = (),
) -> float:
    """What the base rate is multiplied by: 1 at first, then a decay.

    ``exponential`` is that of DwoPP's official code, ``end ** ((e + 1 - S) / (epochs + 1 - S))`` in epoch e (from 1),
    S = ``start * epochs``, which arrives at ``end`` in the last one; an only epoch is the last one. The paper prints a
    slightly slower decay.
    ``cosine`` falls from 1 in epoch S to almost ``end``, as in Co2L's and CCLIS's official code (there S = 0).
    ``steps`` is multiplied by ``end`` in each of the ``milestones`` and stays there, as in BoT's official code, which
    counts epochs from 1: in the milestones, and in the warm-up, whose first epoch is at 0.109 where it has 10.

    Args:
        epoch: from 0.
        epochs: of the task.
        start: share of the epochs at the full rate, in [0, 1]; not of ``steps``.
        end: factor at the end; of ``steps`` at each milestone.
        warmup: the first so many epochs rise linearly from a hundredth, as in BoT.
        shape: of the decay.
        milestones: epochs, from 1.
    """
    if shape == "steps":
        number = epoch + 1
        rise = 1.0 if number >= warmup else 0.01 + 0.99 * number / warmup
        return rise * end ** sum(milestone <= number for milestone in milestones)
    first = start * epochs
    rise = 1.0 if epoch >= warmup else 0.01 + 0.99 * epoch / warmup
    if epoch + 1 < first or start == 1:
        return rise
    if shape == "cosine":
        done = (epoch + 1 - first) / max(epochs - first, 1)
        return rise * (end + (1 - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2)
    return rise * end ** ((epoch + 2 - first) / (epochs + 1 - first))
