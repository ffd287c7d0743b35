"""The learning rate over the epochs of a task."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lreid.config_keys import Train


class Schedule:
    """The learning rate in every epoch: ``TRAIN.LR`` times :meth:`factor`.

    With ``end`` for ``TRAIN.END_FACTOR`` and S for ``TRAIN.DECAY_START * epochs``, ``TRAIN.SCHEDULE`` is

    * ``exponential``: that of DwoPP's official code, ``end ** ((e + 1 - S) / (epochs + 1 - S))`` in epoch e (from 1),
      which arrives at ``end`` in the last one; an only epoch is the last one. The paper prints a slightly slower decay.
    * ``cosine``: falls from 1 in epoch S to almost ``end``, as in Co2L's and CCLIS's official code (there S = 0).
    * ``steps``: multiplied by ``TRAIN.STEP_FACTOR`` in each of ``TRAIN.MILESTONES``, and stays there, as in BoT's
      official code. Milestones and warm-up count from ``TRAIN.FIRST_EPOCH_NUMBER``. Official codes set the rate before
      an epoch (BoT's: 1; with a warm-up of 10 the first epoch is at 0.109), after it (LSTKC's: 0), or after it for the
      epoch that is over (AKA's: -1).

    The first ``TRAIN.WARMUP_EPOCHS`` rise linearly from a hundredth, as in BoT.

    Args:
        train: the section of a config.
    """

    def __init__(self, train: Train) -> None:
        self.train = train

    def rate(self, task: int, epoch: int, epochs: Sequence[int], *, first: int = 0) -> float:
        """In an epoch, from 0, of a task, from 0, where the tasks have so many epochs.

        ``first`` is the task with which a schedule that goes over several (``TRAIN.RESTARTS False``) begins; the tasks
        before are all like it.
        """
        if self.train.RESTARTS:
            return self.train.LR * self.factor(epoch, epochs[task])
        return self.train.LR * self.factor(sum(epochs[first:task]) + epoch, sum(epochs[first:]))

    def factor(self, epoch: int, epochs: int) -> float:
        """What the base rate is multiplied by in an epoch, from 0, of so many: 1 at first, then a decay."""
        train, end = self.train, self.train.END_FACTOR
        if train.SCHEDULE == "steps":
            number = max(epoch + train.FIRST_EPOCH_NUMBER, 0)
            return self._rise(number) * train.STEP_FACTOR ** sum(milestone <= number for milestone in train.MILESTONES)
        start = train.DECAY_START * epochs
        if epoch + 1 < start or train.DECAY_START == 1:
            return self._rise(epoch)
        if train.SCHEDULE == "cosine":
            done = (epoch + 1 - start) / max(epochs - start, 1)
            return self._rise(epoch) * (end + (1 - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2)
        return self._rise(epoch) * end ** ((epoch + 2 - start) / (epochs + 1 - start))

    def _rise(self, number: int) -> float:
        """Factor of the warm-up in the epoch of a number."""
        warmup = self.train.WARMUP_EPOCHS
        return 1.0 if number >= warmup else 0.01 + 0.99 * number / warmup
