"""Create, check, read and summarise ``results.json``: facts about a run, and its metrics after every task."""

from lreid.results.content import (
    KINDS,
    SCHEMA,
    Gallery,
    Kind,
    Results,
    averaged_kinds,
    columns,
    is_trained,
    matrix,
    names_of,
)
from lreid.results.file import fault, read, write
from lreid.results.ledger import Figures, add_accuracies, add_initial, add_task, resumed, start
from lreid.results.metrics import MAX_RANK, METRICS, Metric, figures_of
from lreid.results.summaries import (
    average,
    cross_average,
    curve,
    falls_and_rises,
    identity_changes,
    summarise_accuracies,
    summary,
    task_changes,
)

__all__ = [
    "KINDS",
    "MAX_RANK",
    "METRICS",
    "SCHEMA",
    "Figures",
    "Gallery",
    "Kind",
    "Metric",
    "Results",
    "add_accuracies",
    "add_initial",
    "add_task",
    "average",
    "averaged_kinds",
    "columns",
    "cross_average",
    "curve",
    "falls_and_rises",
    "fault",
    "figures_of",
    "identity_changes",
    "is_trained",
    "matrix",
    "names_of",
    "read",
    "resumed",
    "start",
    "summarise_accuracies",
    "summary",
    "task_changes",
    "write",
]
