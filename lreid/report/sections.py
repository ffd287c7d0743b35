"""Sections of a page: metrics after every task, loss terms, the first updates of a task, and test identities.

In every chart, a line is a group of runs. A function that makes a section gets the groups of one benchmark, and a
suffix for titles that names this benchmark. A function that makes a section returns a list with this section, or an
empty list if the runs have no values for it.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from lreid.errors import counted, one_line
from lreid.report.plots import Axis, Line, Points, averages, line_chart, line_keys, lines_of
from lreid.report.rendering import VERDICTS, Cell, Panel, RankedQuery, Table, TableRow, Tile, panel
from lreid.report.tables import Group, labels, mean_and_std, number, spread_text
from lreid.results import (
    MEAN_KINDS,
    METRICS,
    Results,
    falls_and_rises,
    gain_interval,
    identity_changes,
    matrix,
    task_changes,
)
from lreid.utils.reading import parse_yaml

CLASSIFICATIONS = {"class": "class-incremental", "task": "task-incremental"}
SIDES = ("forgetting", "plasticity")
GALLERY_FIGURES = ("first mAP", "best mAP", "last mAP", *SIDES)
# Title and note of each section, by the function that makes it.
TEXTS: dict[str, list[str]] = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
BAND = " Bands: one standard deviation."
MOST_TICKS = 10  # maximum number of ticks on an x axis
CLEAR = 5.0  # change in points of AP from which an identity counts as better or worse
HARDEST = 15  # maximum number of hardest identities
MOST_FORGOTTEN = 8  # maximum number of forgotten identities
ROOM = 4  # maximum number of methods in one line
FORGOTTEN = 10.0  # loss in points of average precision from which an identity counts as forgotten

IdentityKey = tuple[str, str, int]  # benchmark, test set and number of the identity


class Chart(NamedTuple):
    """A chart with a title; ``lines`` has one line per group, or all lines of one group with their ``legend``."""

    title: str
    lines: Sequence[Line]
    axis: Axis
    legend: bool = False

    @property
    def svg(self) -> Markup:
        """The chart as an ``<svg>`` element."""
        return line_chart(tuple(self.lines), f"{self.title} by {self.axis.label}", self.axis)


# ---------------------------------------------------------------- before and after


def gain_rows(results: Results) -> list[tuple[dict[str, Any], str]]:
    """Compare the metrics on each test set before and after a run, if the run tested its initial model.

    :func:`lreid.results.gain_interval` computes the confidence interval of a gain. An identity counts as
    better if its AP rises by more than :data:`CLEAR` points, and as worse if it falls by more.

    Returns:
        For each test set, the columns of a row, and a note with the smallest visible difference: half the width of the
        confidence interval or the weight of one query, whichever is larger.
    """
    continued = results["tasks"][0] == "before"  # lreid.data.tasks.BEFORE, all training before the run
    if not results["mAP"] or not (results.get("initial") or (continued and len(results["mAP"]) > 1)):
        return []
    rows = []
    for column, gallery in enumerate(results["galleries"]):
        people: Any = results.get("identity_ap", {}).get(gallery["name"])
        before: Any = results.get("initial_ap", {}).get(gallery["name"])
        if not people or (results.get("initial") and not before):
            continue
        first = {metric: matrix(results, metric)[0][column] for metric in ("mAP", "rank1")}
        first_ap, last_ap = people["ap"][0], people["ap"][-1]
        if results.get("initial"):
            first = {metric: results["initial"][metric][column] for metric in first}
            first_ap = before
        pairs = [f"{number(value)} → {number(matrix(results, metric)[-1][column])}" for metric, value in first.items()]
        low, high = gain_interval(first_ap, last_ap, people["queries"])
        changes, queries = np.subtract(last_ap, first_ap), sum(people["queries"])
        row = {
            "test set": (name := one_line(gallery["name"])),
            "mAP": pairs[0],
            "gain (95 % interval)": f"{results['mAP'][-1][column] - first['mAP']:+.1f} ({low:+.1f} to {high:+.1f})",
            "Rank-1": pairs[1],
            "better": int((changes > CLEAR).sum()),
            "worse": int((changes < -CLEAR).sum()),
            "people": len(changes),
        }
        if continued:
            row["identities"] = "learned before" if gallery["first_task"] == 0 else "new"
        size, least = f"{counted(queries, 'query')} of {counted(len(changes), 'identity')}", (high - low) / 2
        note = f"{name}: {size}, too few to show differences under {max(least, 100 / queries):.1f} points"
        rows.append((row, note))
    return rows


def before_after(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show a single run's metrics before and after training."""
    rows = gain_rows(groups[0].runs[0]) if len(groups) == len(groups[0].runs) == 1 else []
    if not rows:
        return []
    cells = [TableRow("", [str(cell) for cell in row.values()]) for row, _ in rows]
    title, note = TEXTS["before_after"]
    note = " ".join([note.format(clear=CLEAR), *(f"{each}." for _, each in rows)])
    return [panel("table.html", f"{title}{where}", note, table=Table(title, [*rows[0][0]], cells))]


# ---------------------------------------------------------------- after every task


def learning_curves(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart mean average precision and Rank-1 after every task, averaged over seen and over unseen test sets.

    For a method that learns all tasks at once, the line is horizontal.
    """
    if total_tasks(groups) < 2:  # a single point is not a curve
        return []
    charts = []
    for metric in filter(lambda each: each.main, METRICS):
        lines = {str(kind): lines_of(groups, partial(averages, metric=metric.name, kind=kind)) for kind in MEAN_KINDS}
        charts += _split(groups, metric.label, lines, _task_axis(groups, y_max=100))
    return _section(groups, "learning_curves", where, charts)


def gallery_curves(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart the mAP on several test sets; a vertical line marks the task that trains on the test set's domain."""
    galleries = [gallery for group in groups for run in group.runs for gallery in run["galleries"]]
    kinds = {gallery["name"]: gallery["kind"] for gallery in galleries}
    if len(kinds) < 2 or total_tasks(groups) < 2:
        return []
    charts = []
    for name, kind in kinds.items():
        first = max(gallery["first_task"] or 0 for gallery in galleries if gallery["name"] == name)
        lines = lines_of(groups, partial(_on_gallery, name=name))
        charts.append(task_chart(groups, f"{name}, {kind}", lines, mark=first + 1 if first else None))
    return _section(groups, "gallery_curves", where, charts)


def accuracy(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart each classifier's accuracy after every task, as the mean over tasks so far (needs ``EVAL.ACCURACY``)."""
    summaries = [run.get("accuracy_summary") or {} for group in groups for run in group.runs]
    classifiers = list(dict.fromkeys(name for summary in summaries for name in summary))
    charts = []
    for kind, title in CLASSIFICATIONS.items():
        lines = {_words(name): lines_of(groups, partial(_anytime, name=name, kind=kind)) for name in classifiers}
        charts += _split(groups, title, lines, _task_axis(groups, y_max=100))
    return _section(groups, "accuracy", where, charts)


def accuracy_within_tasks(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart each classifier's accuracy over the number of images seen in a stream (needs ``EVAL.CURVE_IMAGES``)."""
    points = [point for group in groups for run in group.runs for point in entries(run, "accuracy_curve")]
    last = max((point["images"] for point in points), default=0)
    ticks = tuple((last * part / 4, f"{round(last * part / 4):,}") for part in range(5))
    axis = Axis("training images seen", (0, last), ticks, y_max=100)
    charts = [
        Chart(f"{_words(name)}, {title}", lines_of(groups, partial(_while_learning, name=name, kind=kind)), axis)
        for kind, title in CLASSIFICATIONS.items()
        for name in dict.fromkeys(name for point in points for name in point["accuracy"])
    ]
    return _section(groups, "accuracy_within_tasks", where, charts)


def alignment(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart how similar held-out and stored images of the same class are, averaged over the tasks in the memory."""
    lines = lines_of(groups, _alignment)
    charts = [task_chart(groups, "similarity", lines, y_max=1)] if lines else []
    return _section(groups, "alignment", where, charts)


def forgetting(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show forgetting and plasticity of test identities: charts over the tasks, and a table by test set."""
    total = total_tasks(groups)
    ticks = tuple(tick for tick in _spread_ticks(total) if tick[0] > 1) or ((total, str(total)),)
    axis = Axis("task", (min(2, total), total), ticks)
    lines = {key: lines_of(groups, partial(_changes, side=side)) for side, key in enumerate(SIDES)}
    charts = _split(groups, "Points of AP", lines, axis)
    table = _by_test_set(groups) if charts else None
    charts = charts if total > 2 else []  # a single point is not a curve
    return _section(groups, "forgetting", where, charts, table)


def weakest_parts(groups: Sequence[Group], where: str) -> list[Panel]:
    """Name the part of each test set with the lowest value in a group's first run, such as a pair of cameras."""
    rows = []
    for group, label in zip(groups, labels(groups), strict=True):
        for metric, galleries in group.runs[0].get("parts", {}).items():
            for name, values in galleries.items():
                if values:
                    weakest = min(sorted(values), key=lambda part: values[part])
                    cells = [Cell(number(value), value) for value in (values[weakest], fmean(values.values()))]
                    rows.append(TableRow(group.name, [label, name, _words(metric), weakest, *cells]))
    heads = ["method", "test set", "metric", "weakest", "its value", "mean of all"]
    title, note = TEXTS["weakest_parts"]
    return [panel("table.html", f"{title}{where}", note, table=Table(title, heads, rows))] if rows else []


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
            rows.append(TableRow(group.name, [*names, *cells]))
    heads = [*(["method"] if len(groups) > 1 else []), "test set", "kind", *GALLERY_FIGURES]
    return Table("Forgetting by test set", heads, rows)


# ---------------------------------------------------------------- while training


def losses(groups: Sequence[Group], where: str) -> list[Panel]:
    """Make one chart per loss term, because the terms have different magnitudes."""
    total = total_tasks(groups)
    axis = Axis("task", (0, total), tuple((task - 1, label) for task, label in _spread_ticks(total)), dots=False)
    charts = [
        Chart(name, lines_of(groups, partial(_loss_term, name=name, total=total)), axis)
        for name in _names_in(groups, "loss_history", ("task", "epoch", "lr"))
    ]
    return _section(groups, "losses", where, charts)


def drift(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart the feature drift of stored and of held-out images in the first updates after a switch to a new task."""
    shown = (("since_switch", "since the switch"), ("step", "in each update"))
    names = _names_in(groups, "drift", ("task",))
    charts = {f"{name}, {title}": (name, key) for name in names for key, title in shown}
    return _section(groups, "drift", where, _switch_charts(groups, "drift", charts))


def feature_gradients(groups: Sequence[Group], where: str) -> list[Panel]:
    """Chart the norm of the loss gradient at features of stored and incoming images, in the first updates of a task."""
    charts = {f"{name} images": (name,) for name in _names_in(groups, "gradient_norms", ("task",))}
    return _section(groups, "feature_gradients", where, _switch_charts(groups, "gradient_norms", charts))


def _switch_charts(groups: Sequence[Group], key: str, paths: Mapping[str, tuple[str, ...]]) -> list[Chart]:
    """Make one chart per path below a key of the results, over the updates after a switch to a new task."""
    charts = []
    for title, path in paths.items():
        if lines := lines_of(groups, partial(_updates, key=key, path=path)):
            steps = int(max(x for line in lines for x, _ in line.points))
            axis = Axis("updates since the switch", (1, steps), _spread_ticks(steps), dots=False)
            charts.append(Chart(title, lines, axis))
    return charts


# ---------------------------------------------------------------- test identities


class Pictures(NamedTuple):
    """Images for a page that shows how several runs rank test identities.

    Attributes:
        faces: an image of each identity.
        rankings: for each identity and :attr:`Group.name`, pairs of a task number (from 1) and a query's ranking after
            this task.
    """

    faces: Mapping[IdentityKey, Tile] = MappingProxyType({})
    rankings: Mapping[tuple[IdentityKey, str], Sequence[tuple[int, RankedQuery]]] = MappingProxyType({})


class ForgottenIdentity(NamedTuple):
    """A test identity and its average precision in per cent after every task.

    Attributes:
        gallery: test set of the identity.
        curves: one curve for each group that has several tasks and tests the identity, by :attr:`Group.name`. A curve
            consists of pairs: the number of the task (from 1), and the mean AP over the runs of the group. The first
            task of a curve is the one that trains on the domain of the test set.
    """

    gallery: str
    identity: int
    name: str
    curves: dict[str, list[tuple[int, float]]]

    @property
    def lost(self) -> float:
        """Points of average precision that the group with the largest loss lost, from the best to the last task."""
        return max(map(_lost, self.curves.values()))


def _lost(curve: Sequence[tuple[int, float]]) -> float:
    """Return how many points of average precision an identity lost from its best task to the last one."""
    return max(value for _, value in curve) - curve[-1][1]


def most_forgotten(groups: Sequence[Group]) -> list[ForgottenIdentity]:
    """Select up to :data:`MOST_FORGOTTEN` identities that lost most AP in any group, from the best to the last task.

    Only identities that lost at least :data:`FORGOTTEN` points are selected. Merged test sets are left out.
    """
    people: dict[tuple[str, int], ForgottenIdentity] = {}
    for group in groups:
        first = group.runs[0]
        for gallery in first["galleries"]:
            entries = [run.get("identity_ap", {}).get(gallery["name"]) for run in group.runs]
            histories = [each for each in entries if each and len(each["ap"]) > 1]
            if gallery["kind"] == "merged" or len(histories) < len(entries):
                continue
            means = np.mean([each["ap"] for each in histories], 0)  # (tasks, identities)
            begin = gallery["first_task"] or 0
            names = first.get("identity_names", {}).get(gallery["name"], {})
            for identity, values in zip(histories[0]["ids"], means.T.tolist(), strict=True):
                name = names.get(str(identity), str(identity))
                key = gallery["name"], identity
                person = people.setdefault(key, ForgottenIdentity(*key, name, {}))
                if curve := list(enumerate(values[begin:], start=begin + 1)):
                    person.curves[group.name] = curve
    forgotten = [person for person in people.values() if person.curves and person.lost >= FORGOTTEN]
    return sorted(forgotten, key=lambda person: -person.lost)[:MOST_FORGOTTEN]


def fate(curve: Sequence[tuple[int, float]], by: str) -> str:
    """Say whether the group ``by`` retained or forgot an identity, and in which task."""
    values = [value for _, value in curve]
    best, last = int(np.argmax(values)), values[-1]
    change = f"{number(values[best])} → {number(last)}"
    if values[best] - last < FORGOTTEN:
        return f"kept by {by} ({change})"
    falls = -np.diff(values[best:])
    return f"forgotten by {by} in task {curve[best + 1 + int(np.argmax(falls))][0]} ({change})"


def identity_forgetting(groups: Sequence[Group], where: str, pictures: Pictures = Pictures()) -> list[Panel]:  # noqa: B008
    """Show an entry per identity, with its rankings and its average precision after every task for every method."""
    people = most_forgotten(groups)
    if not people:
        return []
    named = dict(zip([group.name for group in groups], labels(groups), strict=True))
    shown: list[dict[str, Any]] = []
    drawn: list[Line] = []
    for person in people:
        key = (groups[0].benchmark, person.gallery, person.identity)
        lines = lines_of(groups, partial(_of_identity, gallery=person.gallery, identity=person.identity))
        drawn += lines
        shown.append(
            {
                "name": person.name,
                "gallery": person.gallery,
                "fates": [(group, fate(curve, named[group])) for group, curve in person.curves.items()],
                "lost": sum(_lost(curve) >= FORGOTTEN for curve in person.curves.values()),
                "chart": task_chart(groups, f"AP of {person.name}", lines),
                "face": pictures.faces.get(key),
                "methods": [(group, label, pictures.rankings.get((key, group), ())) for group, label in named.items()],
            }
        )
    title, note = TEXTS["identity_forgetting"]
    note = note.format(identities=len(people), least=FORGOTTEN) + band_note(drawn)
    if any(queries for person in shown for *_, queries in person["methods"]):
        note += " The images show how every method ranked the gallery for one query of the identity after every task."
    values = {"legend": group_keys(groups), "people": shown, "verdicts": VERDICTS, "room": ROOM}
    return [panel("identity_forgetting.html", f"{title}{where}", note, **values)]


def _of_identity(runs: Sequence[Results], gallery: str, identity: int) -> Points:
    """Return the average precision of an identity after every task of each run; empty if a run does not test it."""
    histories = [run.get("identity_ap", {}).get(gallery, {"ids": [], "ap": []}) for run in runs]
    if any(identity not in each["ids"] for each in histories):
        return []
    curves = [[row[each["ids"].index(identity)] for row in each["ap"]] for each in histories]
    return enumerate(zip(*curves, strict=True), start=1)


class Hard(NamedTuple):
    """A test identity with its average precision after the last and after its best task, averaged over runs."""

    gallery: str
    number: int
    identity: str
    now: float
    best: float


def hardest(groups: Sequence[Group], where: str, pictures: Pictures = Pictures()) -> list[Panel]:  # noqa: B008
    """List the identities with the lowest AP after the last task, averaged over the finished runs of all groups.

    Each AP convention has a list of its own. Merged test sets are left out, because their identities also occur in
    other test sets.
    """
    runs = [run for group in groups for run in group.runs]
    conventions = list(dict.fromkeys(run["ap"] for run in runs))
    panels = []
    for ap in conventions:
        of_convention = finished([run for run in runs if run["ap"] == ap])
        if not (people := hardest_identities(of_convention)):
            continue
        title = f"Hardest identities{where}" + (f", {ap} AP" if len(conventions) > 1 else "")
        over = f", mean over {len(of_convention)} runs" if len(of_convention) > 1 else ""
        note = f"Lowest average precision after the last task{over}, out of {len(people)} test identities."
        faces, name = pictures.faces, groups[0].benchmark
        shown = [each._asdict() | {"face": faces.get((name, each.gallery, each.number))} for each in people[:HARDEST]]
        panels.append(panel("hardest.html", title, note, people=shown))
    return panels


def finished(runs: Sequence[Results]) -> Sequence[Results]:
    """Select the finished runs, or all runs if none of them is finished."""
    return [run for run in runs if len(run["mAP"]) == len(run["tasks"])] or runs


def hardest_identities(runs: Sequence[Results]) -> list[Hard]:
    """Return all test identities in ascending order of average precision."""
    people: dict[tuple[str, int, str], list[tuple[float, float]]] = {}  # final AP and best AP of each run
    for run in runs:
        own = {gallery["name"] for gallery in run["galleries"] if gallery["kind"] != "merged"}
        for gallery, history in run.get("identity_ap", {}).items():
            if gallery in own and history["ap"]:
                names = run.get("identity_names", {}).get(gallery, {})
                best = map(max, zip(*history["ap"], strict=True))
                for identity, now, top in zip(history["ids"], history["ap"][-1], best, strict=True):
                    name = names.get(str(identity), str(identity))
                    people.setdefault((gallery, identity, name), []).append((now, top))
    means = [Hard(*who, fmean(now for now, _ in each), fmean(best for _, best in each)) for who, each in people.items()]
    return sorted(means, key=lambda person: person.now)


# ---------------------------------------------------------------- parts of charts


def _section(
    groups: Sequence[Group], name: str, where: str, charts: Sequence[Chart], table: Table | None = None
) -> list[Panel]:
    """Show charts side by side, a legend for several groups, and a table; return [] if there are no charts.

    Args:
        name: key of :data:`TEXTS`.
        where: suffix of the title.
    """
    if not charts and table is None:
        return []
    title, note = TEXTS[name]
    note += band_note(line for chart in charts for line in chart.lines)
    drawn = [(chart.title, chart.svg, line_keys(chart.lines) if chart.legend else "") for chart in charts]
    return [panel("charts.html", f"{title}{where}", note, legend=group_keys(groups), charts=drawn, table=table)]


def band_note(lines: Any) -> str:
    """Return a note that explains bands if any line has one, otherwise an empty text."""
    return BAND if any(any(line.band) for line in lines) else ""


def group_keys(groups: Sequence[Group]) -> Markup:
    """Make the legend of several groups; for a single group, it is empty."""
    names = enumerate(zip(groups, labels(groups), strict=True))
    keys = [Line(group.name, (), place, label=label) for place, (group, label) in names]
    return line_keys(keys) if len(groups) > 1 else Markup()


def _split(groups: Sequence[Group], title: str, lines: Mapping[str, Sequence[Line]], axis: Axis) -> list[Chart]:
    """Distribute lines over charts: for a single group one chart with all lines, otherwise one chart per name."""
    lines = {name: _level(groups, each) for name, each in lines.items() if each}
    if len(groups) > 1:
        return [Chart(f"{title}, {name}", each, axis) for name, each in lines.items()]
    lines_of_group = [
        line._replace(label=name, place=place, dash=place)
        for place, (name, each) in enumerate(lines.items())
        for line in each
    ]
    return [Chart(title, lines_of_group, axis, legend=True)] if lines_of_group else []


def task_chart(
    groups: Sequence[Group], title: str, lines: Sequence[Line], *, mark: float | None = None, y_max: float = 100
) -> Chart:
    """Make a chart of values that were measured after every task.

    Args:
        groups: groups of one benchmark.
        lines: lines from :func:`lreid.report.plots.lines_of`; the line of joint training is drawn horizontally.
        mark: number of the task that a vertical line marks.
        y_max: upper bound of the y axis.
    """
    return Chart(title, _level(groups, lines), _task_axis(groups, y_max=y_max, mark=mark))


def _task_axis(groups: Sequence[Group], y_max: float = math.inf, mark: float | None = None) -> Axis:
    total = total_tasks(groups)
    return Axis("tasks learned", (1, total), _spread_ticks(total), y_max=y_max, mark=mark)


def _level(groups: Sequence[Group], lines: Sequence[Line]) -> list[Line]:
    """Make the line of joint training horizontal, from the first to the last task."""
    total = total_tasks(groups)
    at_once = {group.name for group in groups if len(group.runs[0]["tasks"]) == 1 < total}
    return [
        line._replace(points=tuple((x, line.points[0][1]) for x in (1, total)), band=2 * line.band)
        if line.name in at_once
        else line
        for line in lines
    ]


def _spread_ticks(count: int) -> tuple[tuple[float, str], ...]:
    """Choose at most :data:`MOST_TICKS` ticks among the tasks ``1 .. count``."""
    return tuple((task, str(task)) for task in range(1, count + 1, max(1, math.ceil(count / MOST_TICKS))))


def total_tasks(groups: Sequence[Group]) -> int:
    """Number of tasks of the benchmark; joint training counts all of them, although it trains only one."""
    return max(len(run["tasks"]) for group in groups for run in group.runs)


def entries(run: Results, key: str) -> list[dict[str, Any]]:
    """Return the values that a run recorded under a key; empty if it recorded none."""
    recorded: Any = run.get(key)
    return recorded or []


def _names_in(groups: Sequence[Group], key: str, other: Sequence[str]) -> list[str]:
    """List the keys that occur in the entries of any run, each once, without the keys in ``other``."""
    recorded = [entry for group in groups for run in group.runs for entry in entries(run, key)]
    return list(dict.fromkeys(name for entry in recorded for name in entry if name not in other))


def _words(name: str) -> str:
    return name.replace("_", " ")


# ---------------------------------------------------------------- points of lines


def _on_gallery(runs: Sequence[Results], name: str) -> Points:
    names = [gallery["name"] for gallery in runs[0]["galleries"]]  # all runs of a group have the same galleries
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
    measured = [run["alignment"] for run in runs if run.get("alignment")]
    means = [[fmean(each.values()) if each else None for each in rows] for rows in measured]
    return enumerate(zip(*means, strict=False), start=1)


def _changes(runs: Sequence[Results], side: int) -> Points:
    """Return forgetting (``side=0``) or plasticity (``side=1``) for each task after the first."""
    for task, pairs in enumerate(zip(*map(task_changes, runs), strict=True), start=2):
        yield task, [pair and pair[side] for pair in pairs]


def _loss_term(runs: Sequence[Results], name: str, total: int) -> Points:
    """Return the mean of a loss term per epoch, at the middle of the epoch; epochs of joint training span all tasks."""
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
    """Return values that runs recorded under a key, for every update after each switch to a new task."""
    # A short task has fewer values, and updates without images of the requested kind have none.
    values: list[Any] = [entry for run in runs for entry in entries(run, key) if path[0] in entry]
    for name in path:
        values = [entry[name] for entry in values]
    for update, row in enumerate(zip(*values, strict=False), start=1):
        if numbers := [value for value in row if value is not None]:
            yield update, numbers


def gallery_figures(results: Results, name: str) -> list[float | None]:
    """Return the :data:`GALLERY_FIGURES` of a test set, None for missing values.

    The first three values are the mAP after the task that first trains on the domain (or after the first task), the
    best mAP from then on, and the last mAP. The last two values are the forgetting and the plasticity of the test
    identities, averaged over tasks.
    """
    column = [gallery["name"] for gallery in results["galleries"]].index(name)
    start = results["galleries"][column]["first_task"] or 0
    values = [row[column] for row in results["mAP"]][start:]
    if not values:
        return [None] * len(GALLERY_FIGURES)
    rows = range(max(1, start), len(results["mAP"]))
    changes = [*filter(None, (falls_and_rises(identity_changes(results, name, row)) for row in rows))]
    falls, rises = (mean_and_std(each)[0] for each in zip(*changes, strict=True)) if changes else (None, None)
    return [values[0], max(values), values[-1], falls, rises]
