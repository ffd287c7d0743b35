"""The figures of a ranked test set that a run computes, saves and shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A figure of a ranked test set.

    Attributes:
        name: its key in ``results.json``, and behind ``seen_`` and ``unseen_`` in the summary.
        title: heading in tables.
        label: the same in words.
        of: takes a :class:`lreid.retrieval.Evaluation`, gives a fraction in [0, 1].
        main: it stands in tables for a terminal and for print, and has a learning curve.
    """

    name: str
    title: str
    label: str
    of: Callable[[Any], float]
    main: bool = False


# Whatever is added here is computed after every task, averaged, saved, checked and shown.
METRICS = (
    Metric("mAP", "mAP", "mAP", lambda ranked: ranked.mAP, main=True),
    Metric("mINP", "mINP", "mINP", lambda ranked: ranked.mINP),
    Metric("rank1", "R1", "Rank-1", lambda ranked: ranked.cmc[0], main=True),
    Metric("rank5", "R5", "Rank-5", lambda ranked: ranked.cmc[4]),
    Metric("rank10", "R10", "Rank-10", lambda ranked: ranked.cmc[9]),
)
MAX_RANK = 10  # length of the CMC curve that these need


def figures_of(ranked: Any) -> dict[str, float]:
    """All :data:`METRICS` of a :class:`lreid.retrieval.Evaluation`, in per cent."""
    return {metric.name: 100 * float(metric.of(ranked)) for metric in METRICS}
