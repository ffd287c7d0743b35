"""Sections of charts on classification, where ``EVAL.ACCURACY`` had it measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from lreid.report.curves import Points, band_note, chart_grid, lines_of, task_chart, task_charts
from lreid.report.groups import Group
from lreid.report.page import section
from lreid.report.results import Results

KINDS = {"class": "class-incremental", "task": "task-incremental"}


def accuracy(groups: Sequence[Group], where: str) -> str:
    """Accuracy of each classifier after every task, mean over the tasks so far.

    One group has all classifiers in a chart, several have a chart for each.
    """
    runs = [run for group in groups for run in group.runs]
    classifiers = list(dict.fromkeys(name for run in runs for name in run.get("accuracy_summary") or {}))
    charts: list[str] = []
    for kind, title in KINDS.items():
        lines = {
            name.replace("_", " "): lines_of(groups, partial(_anytime, name=name, kind=kind)) for name in classifiers
        }
        charts += task_charts(groups, title, lines) if lines else []
    note = (
        "Accuracy in per cent on held-out images of the classes so far, mean over tasks: of all classes "
        "(class-incremental), or told the task (task-incremental)." + band_note(groups)
    )
    return section(f"Classification{where}", note, chart_grid(groups, charts))


def alignment(groups: Sequence[Group], where: str) -> str:
    """How near held-out images come to the stored ones of their class, mean over the tasks in the memory."""
    lines = lines_of(groups, _alignment)
    note = (
        "Highest cosine similarity of a stored image to a held-out one of its class (ER-ACE, Appendix B), mean over "
        "tasks: low where a model overfits its memory." + band_note(groups)
    )
    charts = [task_chart(groups, "similarity", lines, y_max=1)] if lines else []
    return section(f"Stored and held-out images{where}", note, chart_grid(groups, charts))


def _anytime(runs: Sequence[Results], name: str, kind: str) -> Points:
    summaries = [run["accuracy_summary"] for run in runs if run.get("accuracy_summary")]
    rows = [summary[name][kind]["anytime_accuracy"] for summary in summaries if name in summary]
    return enumerate(zip(*rows, strict=False), start=1)


def _alignment(runs: Sequence[Results]) -> Points:
    found = [run["alignment"] for run in runs if run.get("alignment")]
    means = [[fmean(each.values()) if each else None for each in rows] for rows in found]
    return enumerate(zip(*means, strict=False), start=1)
