"""The learning rate over the epochs of a task."""

from __future__ import annotations

import math
from typing import Literal


def decay_factor(
    epoch: int,
    epochs: int,
    *,
    start: float,
    end: float,
    warmup: int = 0,
    shape: Literal["exponential", "cosine"] = "exponential",
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
