"""The metrics of a ranked test set that a run computes, saves and shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A figure of a ranked test set.

    Attributes:
        name: its key in ``results.json``, and after ``seen_`` and ``unseen_`` in the summary.
        title: heading in tables.
        label: the same in words.
        of: takes a :class:`lreid.retrieval.Evaluation`, gives a fraction in [0, 1].
        main: it stands in tables for a terminal and for print, and has a learning curve.
        depth: ranks of the CMC curve that it needs.
    """

    name: str
    title: str
    label: str
    of: Callable[[Any], float]
    main: bool = False
    depth: int = 1


def rank(k: int, *, main: bool = False) -> Metric:
    """Rank-k: the share of queries with a match in the first ``k`` ranks."""
    return Metric(f"rank{k}", f"R{k}", f"Rank-{k}", lambda ranked: ranked.cmc[k - 1], main, depth=k)


# Metrics in this list are computed after every task, averaged, saved, checked and shown.
METRICS = (
    Metric("mAP", "mAP", "mAP", lambda ranked: ranked.mAP, main=True),
    Metric("mINP", "mINP", "mINP", lambda ranked: ranked.mINP),
    rank(1, main=True),
    rank(5),
    rank(10),
)
MAX_RANK = max(metric.depth for metric in METRICS)  # length of the CMC curve


def figures_of(ranked: Any) -> dict[str, float]:
    """All :data:`METRICS` of a :class:`lreid.retrieval.Evaluation`, in per cent."""
    return {metric.name: 100 * float(metric.of(ranked)) for metric in METRICS}
