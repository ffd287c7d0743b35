"""The learning rate over the epochs of a task."""

from __future__ import annotations


def decay_factor(epoch: int, epochs: int, *, start: float, end: float, warmup: int = 0) -> float:
    """What the base rate is multiplied by: 1 at first, then an exponential decay.

    As in DwoPP's official code, which decays by ``end ** ((e + 1 - S) / (epochs + 1 - S))`` in epoch e (from 1),
    S = ``start * epochs``, and so arrives at ``end`` in the last one. The paper prints a slightly slower decay.

    Args:
        epoch: from 0.
        epochs: of the task.
        start: share of the epochs at the full rate, in [0, 1].
        end: factor in the last epoch.
        warmup: the first so many epochs rise linearly from a hundredth, as in BoT.
    """
    first = start * epochs
    rise = 1.0 if epoch >= warmup else 0.01 + 0.99 * epoch / warmup
    if epoch + 1 < first:
        return rise
    return rise * end ** ((epoch + 2 - first) / (epochs + 1 - first))
