"""The learning rate over the epochs of a task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Shape = Literal["exponential", "cosine", "steps"]


@dataclass(frozen=True)
class Schedule:
    """The learning rate in every epoch: ``base`` times :meth:`factor`.

    ``exponential`` is that of DwoPP's official code, ``end ** ((e + 1 - S) / (epochs + 1 - S))`` in epoch e (from 1),
    S = ``start * epochs``, which arrives at ``end`` in the last one; an only epoch is the last one. The paper prints a
    slightly slower decay.
    ``cosine`` falls from 1 in epoch S to almost ``end``, as in Co2L's and CCLIS's official code (there S = 0).
    ``steps`` is multiplied by ``end`` in each of the ``milestones`` and stays there, as in BoT's official code.

    Attributes:
        base: the full rate.
        start: share of the epochs at the full rate, in [0, 1]; not of ``steps``.
        end: factor at the end; of ``steps`` at each milestone.
        warmup: the first so many epochs rise linearly from a hundredth, as in BoT.
        shape: of the decay.
        milestones: numbers of epochs.
        count_from: number of the first epoch for the milestones and the warm-up of ``steps``, in -1, 0 and 1. Official
            codes set the rate before an epoch (BoT's: 1; with a warm-up of 10 the first epoch is at 0.109), after it
            (LSTKC's: 0), or after it for the epoch that is over (AKA's: -1).
        restarts: every task has a schedule of its own; without, one goes over the epochs of all tasks.
    """

    base: float
    start: float = 0.5
    end: float = 0.005
    warmup: int = 0
    shape: Shape = "exponential"
    milestones: tuple[int, ...] = ()
    count_from: int = 1
    restarts: bool = True

    def rate(self, task: int, epoch: int, epochs: Sequence[int], *, first: int = 0) -> float:
        """In an epoch, from 0, of a task, from 0, where the tasks have so many epochs.

        ``first`` is the task with which a schedule that goes over several begins; the tasks before are all like it.
        """
        if self.restarts:
            return self.base * self.factor(epoch, epochs[task])
        return self.base * self.factor(sum(epochs[first:task]) + epoch, sum(epochs[first:]))

    def factor(self, epoch: int, epochs: int) -> float:
        """What the base rate is multiplied by in an epoch, from 0, of so many: 1 at first, then a decay."""
        if self.shape == "steps":
            number = max(epoch + self.count_from, 0)
            rise = 1.0 if number >= self.warmup else 0.01 + 0.99 * number / self.warmup
            return rise * self.end ** sum(milestone <= number for milestone in self.milestones)
        first = self.start * epochs
        rise = 1.0 if epoch >= self.warmup else 0.01 + 0.99 * epoch / self.warmup
        if epoch + 1 < first or self.start == 1:
            return rise
        if self.shape == "cosine":
            done = (epoch + 1 - first) / max(epochs - first, 1)
            return rise * (self.end + (1 - self.end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2)
        return rise * self.end ** ((epoch + 2 - first) / (epochs + 1 - first))
