"""Sections of charts on the first updates after a task switch: how far old images move, how hard the loss pulls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lreid.report.curves import Points, chart_grid, entries, figure, lines_of, names_in
from lreid.report.groups import Group
from lreid.report.page import section
from lreid.report.results import Results
from lreid.report.svg import line_chart, spread_ticks

SPREAD = "Mean over task switches and seeds, bands: one standard deviation."


def drift(groups: Sequence[Group], where: str) -> str:
    """How far features of stored and of test images move."""
    charts = []
    for name in names_in(groups, "drift", ("task",)):
        for key, title in (("since_switch", "since the switch"), ("step", "in each update")):
            charts.append(_chart(groups, "drift", (name, key), f"{name}, {title}"))
    note = f"Distance that features of unit length move when the next task begins (ER-ACE, Section 3.3). {SPREAD}"
    return section(f"Drift{where}", note, chart_grid(groups, charts))


def pull(groups: Sequence[Group], where: str) -> str:
    """How hard the loss pulls at features of stored and of incoming images."""
    names = names_in(groups, "gradient_norms", ("task",))
    charts = [_chart(groups, "gradient_norms", (name,), f"{name} images") for name in names]
    note = f"Norm of the gradient of the loss by a feature when the next task begins (ER-ACE, Appendix C). {SPREAD}"
    return section(f"Pull of the loss{where}", note, chart_grid(groups, charts))


def _chart(groups: Sequence[Group], key: str, path: tuple[str, ...], title: str) -> str:
    """Nothing where nothing was measured."""
    lines = lines_of(groups, partial(_updates, key=key, path=path))
    if not lines:
        return ""
    steps = int(max(x for line in lines for x, _ in line.points))
    chart = line_chart(
        lines,
        x_range=(1, steps),
        x_label="updates since the switch",
        x_ticks=spread_ticks(steps),
        title=f"{key.replace('_', ' ')} of {title}",
    )
    return figure(title, chart)


def _updates(runs: Sequence[Results], key: str, path: tuple[str, ...]) -> Points:
    """What every switch of every run has under a path, update by update; a short task has fewer of them.

    Where there was no such image there is no number; updates without any are left out.
    """
    found = [entry for run in runs for entry in entries(run, key) if path[0] in entry]
    for name in path:
        found = [entry[name] for entry in found]
    for update, values in enumerate(zip(*found, strict=False), start=1):
        if known := [value for value in values if value is not None]:
            yield update, known
