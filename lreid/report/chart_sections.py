"""Sections of charts: figures after every task, terms of the loss, first updates of a task. A group of runs is a line.

Every function takes the groups of one benchmark and what stands behind a title to tell benchmarks apart, and gives its
section in a list, which is empty where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from markupsafe import Markup

from lreid.report.groups import Group, labels
from lreid.report.rendering import Cell, Panel, Row, Table, panel
from lreid.report.svg import Line, line_chart, line_keys, line_style, spread_ticks
from lreid.report.tables import mean_and_std, spread_text
from lreid.results import KINDS, METRICS, Kind, Results, curve, falls_and_rises, identity_changes, task_changes

CLASSIFICATIONS = {"class": "class-incremental", "task": "task-incremental"}
SIDES = ("forgetting", "plasticity")
GALLERY_FIGURES = ("first mAP", "best mAP", "last mAP", *SIDES)
BAND = " Bands: one standard deviation over seeds."
SPREAD = "Mean over task switches and seeds, bands: one standard deviation."

Points = Iterable[tuple[float, Sequence[float | None]]]  # x, and a value of each run there


class Chart(NamedTuple):
    """A chart below its title and the legend of its lines, if it has one of its own."""

    title: str
    svg: Markup
    legend: Markup = Markup()


# ---------------------------------------------------------------- after every task


def learning_curves(groups: Sequence[Group], where: str) -> list[Panel]:
    """Mean average precision and Rank-1 after every task, averaged over seen and over unseen test sets.

    One group has both averages in a chart, several have a chart for each. Methods that learn all tasks at once are
    level lines.
    """
    charts = []
    for metric in filter(lambda each: each.main, METRICS):
        lines: dict[str, list[Line]] = {
            kind: lines_of(groups, partial(_averages, metric=metric.name, kind=kind)) for kind in KINDS
        }
        charts += task_charts(groups, metric.label, {kind: each for kind, each in lines.items() if each})
    note = "Seen: mean over the test sets whose domain has been trained by then." + band_note(groups)
    return chart_section(groups, f"Learning curve{where}", note, charts)


def gallery_curves(groups: Sequence[Group], where: str) -> list[Panel]:
    """Mean average precision on each of several test sets; an upright line stands where its domain is trained."""
    known = [gallery for group in groups for run in group.runs for gallery in run["galleries"]]
    kinds = {gallery["name"]: gallery["kind"] for gallery in known}
    if len(kinds) < 2:
        return []
    charts = []
    for name, kind in kinds.items():
        first = max(gallery["first_task"] or 0 for gallery in known if gallery["name"] == name)
        lines = lines_of(groups, partial(_on_gallery, name=name))
        charts.append(task_chart(groups, f"{name}, {kind}", lines, mark=first + 1 if first else None))
    note = "mAP. The upright line stands at the task in which the domain is trained first." + band_note(groups)
    return chart_section(groups, f"Every test set{where}", note, charts)


def accuracy(groups: Sequence[Group], where: str) -> list[Panel]:
    """Accuracy of each classifier after every task, mean over the tasks so far, where ``EVAL.ACCURACY`` measured it.

    One group has all classifiers in a chart, several have a chart for each.
    """
    runs = [run for group in groups for run in group.runs]
    classifiers = list(dict.fromkeys(name for run in runs for name in run.get("accuracy_summary") or {}))
    charts = []
    for kind, title in CLASSIFICATIONS.items():
        lines = {
            name.replace("_", " "): lines_of(groups, partial(_anytime, name=name, kind=kind)) for name in classifiers
        }
        charts += task_charts(groups, title, lines) if lines else []
    note = (
        "Accuracy in per cent on held-out images of the classes so far, mean over tasks: of all classes "
        "(class-incremental), or told the task (task-incremental)." + band_note(groups)
    )
    return chart_section(groups, f"Classification{where}", note, charts)


def accuracy_within_tasks(groups: Sequence[Group], where: str) -> list[Panel]:
    """Accuracy of each classifier against the images of the stream, where ``EVAL.CURVE_IMAGES`` measured it."""
    runs = [run for group in groups for run in group.runs]
    points = [point for run in runs for point in entries(run, "accuracy_curve")]
    charts = []
    for kind, title in CLASSIFICATIONS.items():
        for name in dict.fromkeys(name for point in points for name in point["accuracy"]):
            chart = line_chart(
                lines_of(groups, partial(_while_learning, name=name, kind=kind)),
                x_range=(0, max(point["images"] for point in points)),
                x_label="images seen",
                x_ticks=_image_ticks(max(point["images"] for point in points)),
                title=f"{name.replace('_', ' ')}, {title}, by images seen",
                dots=True,
                y_max=100,
            )
            charts.append(Chart(f"{name.replace('_', ' ')}, {title}", chart))
    note = (
        "Accuracy in per cent on held-out images of the classes so far, mean over tasks, whenever so many more images "
        "of the stream were seen (Contrast Scoring, Figs. 3-6)." + band_note(groups)
    )
    return chart_section(groups, f"Learning curve within tasks{where}", note, charts)


def _image_ticks(last: int) -> list[tuple[float, str]]:
    return [(last * part / 4, f"{round(last * part / 4):,}") for part in range(5)]


def alignment(groups: Sequence[Group], where: str) -> list[Panel]:
    """How near held-out images come to the stored ones of their class, mean over the tasks in the memory."""
    lines = lines_of(groups, _alignment)
    note = (
        "Highest cosine similarity of a stored image to a held-out one of its class (ER-ACE, Appendix B), mean over "
        "tasks: low where a model overfits its memory." + band_note(groups)
    )
    charts = [task_chart(groups, "similarity", lines, y_max=1)] if lines else []
    return chart_section(groups, f"Stored and held-out images{where}", note, charts)


def forgetting(groups: Sequence[Group], where: str) -> list[Panel]:
    """What every task takes from test identities and what it gives them: charts over the tasks, a table by test set."""
    lines = {key: lines_of(groups, partial(_changes, side=side)) for side, key in enumerate(SIDES)}
    lines = {key: each for key, each in lines.items() if each}
    if not lines:
        return []
    if len(groups) == 1:
        charts = [_forgetting_chart(groups, "Points of AP", one_group(lines))]
    else:
        charts = [_forgetting_chart(groups, key.capitalize(), each) for key, each in lines.items()]
    note = (
        "From task to task the AP of a test identity falls (forgetting, 0 or less) or rises (plasticity, 0 or more): "
        "mean over identities of the test sets that are trained by then. First mAP: after the task that trains the "
        "domain first." + band_note(groups)
    )
    return chart_section(groups, f"Forgetting and plasticity{where}", note, charts, _by_test_set(groups))


def _forgetting_chart(groups: Sequence[Group], title: str, lines: Sequence[Line]) -> Chart:
    total = total_tasks(groups)
    ticks = [tick for tick in spread_ticks(total) if tick[0] > 1] or [(total, str(total))]
    svg = line_chart(
        lines, x_range=(min(2, total), total), x_label="task", x_ticks=ticks, title=f"{title} in every task", dots=True
    )
    return Chart(title, svg, line_keys(lines) if len(groups) == 1 else Markup())


def _by_test_set(groups: Sequence[Group]) -> Table:
    rows = []
    for group, label in zip(groups, labels(groups), strict=True):
        for gallery in group.runs[0]["galleries"]:
            figures = zip(*(gallery_figures(run, gallery["name"]) for run in group.runs), strict=True)
            spreads = [mean_and_std(values) for values in figures]
            cells = [
                Cell(spread_text(mean, std, signed=key in SIDES), mean)
                for key, (mean, std) in zip(GALLERY_FIGURES, spreads, strict=True)
            ]
            names = [*([label] if len(groups) > 1 else []), gallery["name"], gallery["kind"]]
            rows.append(Row(group.name, [*names, *cells]))
    heads = [*(["method"] if len(groups) > 1 else []), "test set", "kind", *GALLERY_FIGURES]
    return Table("Forgetting by test set", heads, rows)


# ---------------------------------------------------------------- while training


def losses(groups: Sequence[Group], where: str) -> list[Panel]:
    """A chart for each term of the loss, as their sizes differ."""
    total = total_tasks(groups)
    charts = []
    for name in names_in(groups, "loss_history", ("task", "epoch", "lr")):
        svg = line_chart(
            lines_of(groups, partial(_loss_term, name=name, total=total)),
            x_range=(0, total),
            x_label="task",
            x_ticks=[(task - 1, label) for task, label in spread_ticks(total)],
            title=f"loss term {name}",
        )
        charts.append(Chart(name, svg))
    note = "Mean over an epoch of each term, before its weight; ticks stand where tasks begin." + band_note(groups)
    return chart_section(groups, f"Loss{where}", note, charts)


def drift(groups: Sequence[Group], where: str) -> list[Panel]:
    """How far features of stored and of test images move in the first updates after a task switch."""
    charts = [
        chart
        for name in names_in(groups, "drift", ("task",))
        for key, title in (("since_switch", "since the switch"), ("step", "in each update"))
        for chart in _switch_charts(groups, "drift", (name, key), f"{name}, {title}")
    ]
    note = f"Distance that features of unit length move when the next task begins (ER-ACE, Section 3.3). {SPREAD}"
    return chart_section(groups, f"Drift{where}", note, charts)


def feature_gradients(groups: Sequence[Group], where: str) -> list[Panel]:
    """Norm of the gradient of the loss by features of stored and of incoming images, in the same updates."""
    charts = [
        chart
        for name in names_in(groups, "gradient_norms", ("task",))
        for chart in _switch_charts(groups, "gradient_norms", (name,), f"{name} images")
    ]
    note = f"Norm of the gradient of the loss by a feature when the next task begins (ER-ACE, Appendix C). {SPREAD}"
    return chart_section(groups, f"Feature-gradient norm{where}", note, charts)


def _switch_charts(groups: Sequence[Group], key: str, path: tuple[str, ...], title: str) -> list[Chart]:
    """A chart by update; none where nothing was measured."""
    lines = lines_of(groups, partial(_updates, key=key, path=path))
    if not lines:
        return []
    steps = int(max(x for line in lines for x, _ in line.points))
    svg = line_chart(
        lines,
        x_range=(1, steps),
        x_label="updates since the switch",
        x_ticks=spread_ticks(steps),
        title=f"{key.replace('_', ' ')} of {title}",
    )
    return [Chart(title, svg)]


# ---------------------------------------------------------------- what charts are made of


def chart_section(
    groups: Sequence[Group], title: str, note: str, charts: Sequence[Chart], table: Table | None = None
) -> list[Panel]:
    """Charts side by side, of several groups below the legend of their lines, and a table; nothing without charts."""
    if not charts:
        return []
    names = [
        Line(group.name, (), line_style(place), label=label)
        for place, (group, label) in enumerate(zip(groups, labels(groups), strict=True))
    ]
    legend = line_keys(names) if len(groups) > 1 else ""
    return [panel("charts.html", title, note, legend=legend, charts=charts, table=table)]


def task_charts(groups: Sequence[Group], title: str, lines: dict[str, list[Line]]) -> list[Chart]:
    """Of one group all lines in a chart, of several a chart for each name; see :func:`task_chart`."""
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
) -> Chart:
    """A chart of what was measured after every task.

    Args:
        groups: of one benchmark.
        title: of the chart.
        lines: see :func:`lines_of`; those of methods that learn all tasks at once are level lines.
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
    svg = line_chart(
        level,
        x_range=(1, total),
        x_label="tasks learned",
        x_ticks=spread_ticks(total),
        title=f"{title} after every task",
        dots=True,
        y_max=y_max,
        mark=mark,
    )
    return Chart(title, svg, line_keys(lines) if legend else Markup())


def lines_of(groups: Sequence[Group], points: Callable[[Sequence[Results]], Points]) -> list[Line]:
    """The line of each group through the means at each x, with their deviation as its band.

    Args:
        groups: of one benchmark; their position decides on the colour.
        points: from the runs of a group; those x at which a value is None are left out.

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


def total_tasks(groups: Sequence[Group]) -> int:
    """Tasks of the benchmark; methods that learn them at once have one."""
    return max(len(run["tasks"]) for group in groups for run in group.runs)


def entries(run: Results, key: str) -> list[dict[str, Any]]:
    """What a run put down under a key; nothing where it did not."""
    found: Any = run.get(key)
    return found or []


def names_in(groups: Sequence[Group], key: str, other: Sequence[str]) -> list[str]:
    """What the entries of all runs hold beside the ``other`` keys, each once."""
    found = [entry for group in groups for run in group.runs for entry in entries(run, key)]
    return list(dict.fromkeys(name for entry in found for name in entry if name not in other))


def band_note(groups: Sequence[Group]) -> str:
    """What bands are, where there are some."""
    return BAND if any(len(group.runs) > 1 for group in groups) else ""


# ---------------------------------------------------------------- points of lines


def _averages(runs: Sequence[Results], metric: str, kind: Kind) -> Points:
    return enumerate(zip(*(curve(run, metric, kind) for run in runs), strict=True), start=1)


def _on_gallery(runs: Sequence[Results], name: str) -> Points:
    names = [gallery["name"] for gallery in runs[0]["galleries"]]  # of all runs of a group
    if name not in names:
        return ()
    curves = [[row[names.index(name)] for row in run["mAP"]] for run in runs]
    return enumerate(zip(*curves, strict=True), start=1)


def _anytime(runs: Sequence[Results], name: str, kind: str) -> Points:
    summaries = [run["accuracy_summary"] for run in runs if run.get("accuracy_summary")]
    rows = [summary[name][kind]["anytime_accuracy"] for summary in summaries if name in summary]
    return enumerate(zip(*rows, strict=False), start=1)


def _while_learning(runs: Sequence[Results], name: str, kind: str) -> Points:
    for points in zip(*(entries(run, "accuracy_curve") for run in runs), strict=False):
        yield points[0]["images"], [point["accuracy"].get(name, {}).get(kind) for point in points]


def _alignment(runs: Sequence[Results]) -> Points:
    found = [run["alignment"] for run in runs if run.get("alignment")]
    means = [[fmean(each.values()) if each else None for each in rows] for rows in found]
    return enumerate(zip(*means, strict=False), start=1)


def _changes(runs: Sequence[Results], side: int) -> Points:
    """Forgetting (0) or plasticity (1) in each task from the second on."""
    for task, pairs in enumerate(zip(*map(task_changes, runs), strict=True), start=2):
        yield task, [pair and pair[side] for pair in pairs]


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


def gallery_figures(results: Results, name: str) -> list[float | None]:
    """:data:`GALLERY_FIGURES` of a test set.

    Its mAP after the task that first trains its domain (after the first task where none does), the best from there on
    and the last; and forgetting and plasticity of its identities, mean over tasks.

    Args:
        results: the content of ``results.json``.
        name: of the test set.

    Returns:
        Five figures; None where there is none yet.
    """
    column = [gallery["name"] for gallery in results["galleries"]].index(name)
    start = results["galleries"][column]["first_task"] or 0
    values = [row[column] for row in results["mAP"]][start:]
    if not values:
        return [None] * len(GALLERY_FIGURES)
    changes = [
        pair
        for row in range(max(1, start), len(results["mAP"]))
        if (pair := falls_and_rises(identity_changes(results, name, row)))
    ]
    falls, rises = (mean_and_std(each)[0] for each in zip(*changes, strict=True)) if changes else (None, None)
    return [values[0], max(values), values[-1], falls, rises]
