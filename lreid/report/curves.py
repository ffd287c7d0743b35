"""Sections of charts: figures after every task, terms of the loss. A group of runs is a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import Any

from lreid.report.groups import Group, labels
from lreid.report.page import section
from lreid.report.results import KINDS, Kind, Results, curve
from lreid.report.svg import Line, keys, line_chart, line_style, spread_ticks
from lreid.report.tables import mean_and_std

METRICS = (("mAP", "mAP"), ("rank1", "Rank-1"))
BAND = " Bands: one standard deviation over seeds."

Points = Iterable[tuple[float, Sequence[float | None]]]  # x, and a value of each run there


def learning_curves(groups: Sequence[Group], where: str) -> str:
    """mAP and Rank-1 after every task, averaged over seen and over unseen test sets.

    One group has both averages in a chart, several have a chart for each. Methods that learn all tasks at once are
    level lines.

    Args:
        groups: of one benchmark.
        where: behind the title, to tell benchmarks apart.
    """
    charts = []
    for metric, title in METRICS:
        lines: dict[str, list[Line]] = {
            kind: lines_of(groups, partial(_averages, metric=metric, kind=kind)) for kind in KINDS
        }
        charts += task_charts(groups, title, {kind: each for kind, each in lines.items() if each})
    note = "Seen: mean over the test sets whose domain has been trained by then." + band_note(groups)
    return section(f"Learning curve{where}", note, chart_grid(groups, charts))


def gallery_curves(groups: Sequence[Group], where: str) -> str:
    """mAP after every task on each test set, where there are several; an upright line: its domain is trained."""
    known = [gallery for group in groups for run in group.runs for gallery in run["galleries"]]
    kinds = {gallery["name"]: gallery["kind"] for gallery in known}
    if len(kinds) < 2:
        return ""
    charts = []
    for name, kind in kinds.items():
        first = max(gallery["first_task"] or 0 for gallery in known if gallery["name"] == name)
        lines = lines_of(groups, partial(_on_gallery, name=name))
        charts.append(task_chart(groups, f"{name}, {kind}", lines, mark=first + 1 if first else None))
    note = "mAP. The upright line stands at the task in which the domain is trained first." + band_note(groups)
    return section(f"Every test set{where}", note, chart_grid(groups, charts))


def losses(groups: Sequence[Group], where: str) -> str:
    """A chart for each term of the loss, as their sizes differ."""
    names = names_in(groups, "loss_history", ("task", "epoch", "lr"))
    total = total_tasks(groups)
    charts = []
    for name in names:
        chart = line_chart(
            lines_of(groups, partial(_loss_term, name=name, total=total)),
            x_range=(0, total),
            x_label="task",
            x_ticks=[(task - 1, label) for task, label in spread_ticks(total)],
            title=f"loss term {name}",
        )
        charts.append(figure(name, chart))
    note = "Mean over an epoch of each term, before its weight; ticks stand where tasks begin." + band_note(groups)
    return section(f"Loss{where}", note, chart_grid(groups, charts))


def entries(run: Results, key: str) -> list[dict[str, Any]]:
    """What a run put down under a key; nothing where it did not."""
    return run.get(key) or []


def names_in(groups: Sequence[Group], key: str, other: Sequence[str]) -> list[str]:
    """What the entries of all runs hold beside the ``other`` keys, each once."""
    found = [entry for group in groups for run in group.runs for entry in entries(run, key)]
    return list(dict.fromkeys(name for entry in found for name in entry if name not in other))


def lines_of(groups: Sequence[Group], points: Callable[[Sequence[Results]], Points]) -> list[Line]:
    """The line of each group through the means at each x, with their deviation as its band.

    Args:
        groups: of one benchmark; their place decides on the colour.
        points: from the runs of a group; places at which a value is None are left out.

    Returns:
        A line for each group that has points.
    """
    lines = []
    for place, (group, label) in enumerate(zip(groups, labels(groups), strict=True)):
        spreads = [(x, *mean_and_std(values)) for x, values in points(group.runs)]
        known = [(x, mean, std or 0.0) for x, mean, std in spreads if mean is not None]
        if known:
            means, band = [(x, mean) for x, mean, _ in known], [std for *_, std in known]
            lines.append(Line(group.name, means, line_style(place), band, label))
    return lines


def one_group(lines: dict[str, list[Line]]) -> list[Line]:
    """The lines of a single group in one chart: named by what they show, the second dashed."""
    return [
        line._replace(label=name, style=f"line-{place} dash-{place}")
        for place, (name, each) in enumerate(lines.items())
        for line in each
    ]


def figure(title: str, chart: str, legend: str = "") -> str:
    """A chart below its title."""
    return f"<figure><figcaption>{escape(title)}{'<br>' * bool(legend)}{legend}</figcaption>{chart}</figure>"


def chart_grid(groups: Sequence[Group], charts: Sequence[str]) -> str:
    """Charts side by side, HTML; of several groups below what their lines are."""
    if not any(charts):
        return ""
    names = [
        Line(group.name, (), line_style(place), label=label)
        for place, (group, label) in enumerate(zip(groups, labels(groups), strict=True))
    ]
    legend = f'<p class="keys">{keys(names)}</p>\n' if len(groups) > 1 else ""
    return f'{legend}<div class="charts">{"".join(charts)}</div>'


def total_tasks(groups: Sequence[Group]) -> int:
    """Tasks of the benchmark; methods that learn them at once have one."""
    return max(len(run["tasks"]) for group in groups for run in group.runs)


def task_charts(groups: Sequence[Group], title: str, lines: dict[str, list[Line]]) -> list[str]:
    """Of one group all lines in a figure, of several a figure for each name; see :func:`task_chart`."""
    if len(groups) == 1:
        return [task_chart(groups, title, one_group(lines), legend=True)]
    return [task_chart(groups, f"{title}, {name}", each) for name, each in lines.items()]


def task_chart(
    groups: Sequence[Group],
    title: str,
    lines: Sequence[Line],
    legend: bool = False,
    mark: float | None = None,
    y_max: float = 100,
) -> str:
    """A figure of what was measured after every task.

    Args:
        groups: of one benchmark.
        title: of the figure.
        lines: see :func:`lines_of`; those of methods that learn all tasks at once are drawn level.
        legend: name the lines below the title.
        mark: an upright line stands at this task.
        y_max: the axis ends there at the latest.
    """
    total = total_tasks(groups)
    at_once = {group.name for group in groups if len(group.runs[0]["tasks"]) == 1}
    level = [
        line._replace(points=[(x, line.points[0][1]) for x in (1, total)], band=2 * list(line.band))
        if total > 1 and line.name in at_once
        else line
        for line in lines
    ]
    chart = line_chart(
        level,
        x_range=(1, total),
        x_label="tasks learned",
        x_ticks=spread_ticks(total),
        title=f"{title} after every task",
        dots=True,
        y_max=y_max,
        mark=mark,
    )
    return figure(title, chart, keys(lines) if legend else "")


def _averages(runs: Sequence[Results], metric: str, kind: Kind) -> Points:
    return enumerate(zip(*(curve(run, metric, kind) for run in runs), strict=True), start=1)


def _on_gallery(runs: Sequence[Results], name: str) -> Points:
    names = [gallery["name"] for gallery in runs[0]["galleries"]]  # of all runs of a group
    if name not in names:
        return ()
    curves = [[row[names.index(name)] for row in run["mAP"]] for run in runs]
    return enumerate(zip(*curves, strict=True), start=1)


def _loss_term(runs: Sequence[Results], name: str, total: int) -> Points:
    """Over the tasks that are done, an epoch's mean in its middle; a run of all tasks at once is as long as others."""
    points: dict[float, list[float]] = {}
    for run in runs:
        history = entries(run, "loss_history")
        epochs = max((entry["epoch"] for entry in history), default=1)
        for entry in history:
            if name in entry:
                x = (entry["task"] + (entry["epoch"] - 0.5) / epochs) * total / len(run["tasks"])
                points.setdefault(x, []).append(entry[name])
    return points.items()


def band_note(groups: Sequence[Group]) -> str:
    """What bands are, where there are some."""
    return BAND if any(len(group.runs) > 1 for group in groups) else ""
