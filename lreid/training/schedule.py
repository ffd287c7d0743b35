"""The learning rate over the epochs of a task."""

from __future__ import annotations


def decay_factor(epoch: int, epochs: int, *, start: float, end: float) -> float:
    """What the base rate is multiplied by: 1 at first, then an exponential decay.

    As in DwoPP's official code, which decays by ``end ** ((e + 1 - S) / (epochs + 1 - S))`` in epoch e (from 1),
    S = ``start * epochs``, and so arrives at ``end`` in the last one. The paper prints a slightly slower decay.

    Args:
        epoch: from 0.
        epochs: of the task.
        start: share of the epochs at the full rate, in [0, 1].
        end: factor in the last epoch.
    """
    first = start * epochs
    if epoch + 1 < first:
        return 1.0
    return end ** ((epoch + 2 - first) / (epochs + 1 - first))
