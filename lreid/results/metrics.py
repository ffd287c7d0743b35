"""Metrics of ranked test sets that a run computes, saves and shows."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A metric of a ranked test set.

    Attributes:
        name: key in ``results.json``; in the summary, keys have the prefix ``seen_`` or ``unseen_``.
        title: heading in tables.
        label: name in sentences.
        of: function from a :class:`lreid.retrieval.Evaluation` to a fraction in [0, 1].
        main: whether terminal and LaTeX tables and learning curves show the metric.
        depth: number of ranks of the CMC curve that the metric needs.
    """

    name: str
    title: str
    label: str
    of: Callable[[Any], float]
    main: bool = False
    depth: int = 1


def rank(k: int, *, main: bool = False) -> Metric:
    """Return the metric Rank-k: the share of queries with a match in the first ``k`` ranks."""
    return Metric(f"rank{k}", f"R{k}", f"Rank-{k}", lambda ranked: ranked.cmc[k - 1], main, depth=k)


# All metrics that are computed after every task, averaged, saved, checked and shown.
METRICS = (
    Metric("mAP", "mAP", "mAP", lambda ranked: ranked.mAP, main=True),
    Metric("mINP", "mINP", "mINP", lambda ranked: ranked.mINP),
    rank(1, main=True),
    rank(5),
    rank(10),
)
MAX_RANK = max(metric.depth for metric in METRICS)  # length of the CMC curve


def figures_of(ranked: Any) -> dict[str, float]:
    """Return all :data:`METRICS` of a :class:`lreid.retrieval.Evaluation`, in per cent."""
    return {metric.name: 100 * float(metric.of(ranked)) for metric in METRICS}
