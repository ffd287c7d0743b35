"""Compare runs: tables as text, Markdown, CSV or LaTeX, and a chart of a varied config key."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lreid.errors import InputError
from lreid.report.plots import Points, draw_lines, lines_by_benchmark, new_figure
from lreid.report.tables import (
    DATA_KEYS,
    IMAGES_TRAINED,
    OPTIONAL,
    SWITCHES,
    Column,
    Spread,
    cost_columns,
    group_figures,
    grouped,
    number,
    per_set_columns,
    result_columns,
    text_table,
)
from lreid.results import MEAN_KINDS, Results, last_figures
from lreid.results.summaries import ENDS, gain_draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# By format: what replaces the control characters around the best value (bold) and the second best (underlined).
MARKS = {
    "markdown": {1: "**", 2: "**", 3: "<u>", 4: "</u>"},
    "latex": {1: r"\textbf{", 2: "}", 3: r"\underline{", 4: "}"},
}
COMPUTED_BY = ("commit", "lreid", "torch", "processor")  # keys of ``versions`` in results.json


def comparison_table(
    runs: Sequence[Results],
    format: Literal["text", "markdown", "csv", "latex"] = "text",
    *,
    each: bool = False,
    cost: bool = False,
    switches: bool = False,
    per_set: bool = False,
) -> str:
    """Compare methods on benchmarks: mean ± standard deviation (n - 1) over the seeds, in per cent.

    Runs with different protocols, configs, AP conventions or numbers of finished tasks are not averaged (see
    :func:`lreid.report.tables.group_names`). Groups are in the order of their first runs.

    Args:
        runs: contents of ``results.json``.
        format: ``text``, ``markdown``, ``csv`` (all metrics, with mean and standard deviation in separate columns), or
            ``latex`` (a ``tabular`` of booktabs).
        each: whether to make a row per run instead of a row per group.
        cost, switches: whether to add the columns of :func:`cost_columns`, or ``SWITCHES`` (for runs with
            ``EVAL.DRIFT_STEPS``).
        per_set: whether columns are those of :func:`per_set_columns`, as in papers. In Markdown and LaTeX, the best
            mean of a column is bold, and the second best is underlined.

    Raises:
        ValueError: the format is unknown.
    """
    if format not in ("text", "markdown", "csv", "latex"):
        raise ValueError(f"unknown format {format!r}; use text, markdown, csv or latex")
    measured = {key for run in runs for key in run["summary"]}
    wanted = per_set_columns(runs) if per_set else result_columns(main=format != "csv")
    columns = tuple(column for column in wanted if column.key in measured or not column.key.startswith(OPTIONAL))
    columns += (cost_columns(runs) if cost else _unequal(runs)) + (SWITCHES if switches else ())
    groups = grouped(runs, each=each)
    keys = ["benchmark", "method", "AP", "tasks", *(["seed"] if each else []), "n"]
    words = [
        [group.benchmark, group.method, group.ap, group.tasks, *([group.seed] if each else []), str(len(group.runs))]
        for group in groups
    ]
    figures = list(zip(words, group_figures(groups, columns), strict=True))
    if format == "csv":
        return _comparison_csv(keys, columns, figures, [_computed_by(group.runs) for group in groups])
    heads = [*keys, *(column.title for column in columns)]
    by_column = zip(*(spreads for _, spreads in figures), strict=True)
    cells = [
        _marked(column, spreads) if per_set and format in MARKS else [column.text(*each) for each in spreads]
        for column, spreads in zip(columns, by_column, strict=True)
    ]
    rows = [[*names, *line] for names, line in zip(words, zip(*cells, strict=True), strict=True)]
    left = len(keys) - 1  # number of columns with text
    return _formatted(heads, rows, format, left)


def _formatted(heads: Sequence[str], rows: Sequence[Sequence[str]], format: str, left: int) -> str:
    """Format a table as text, Markdown or LaTeX."""
    if format == "text":
        return text_table(heads, rows, left=left)
    if format == "markdown":
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return text_table(heads, escaped, left=left, style="pipe").translate(MARKS[format])
    latex = text_table(heads, rows, left=left, style="latex_booktabs")
    return latex.replace("±", r"$\pm$").replace("–", "--").translate(MARKS[format])


def _marked(column: Column, spreads: Sequence[Spread]) -> list[str]:
    """Format the cells of a column; control characters mark the best and the second best mean, as displayed."""
    shown = [column.text(mean) for mean, _ in spreads]
    ranked = sorted({text for text in shown if text != "–"}, key=float, reverse=True)
    marks = dict(zip(ranked, ("\1{}\2", "\3{}\4"), strict=False)) if len(ranked) > 1 else {}
    return [marks.get(text, "{}").format(column.text(*spread)) for text, spread in zip(shown, spreads, strict=True)]


def compare_table(one: Results, other: Results, names: Sequence[str], format: str = "text") -> str:
    """Compare the mAP of two runs after their last tasks, with a 95 % bootstrap interval of the difference.

    The bootstrap draws the queries of both runs together, all queries of an identity at once
    (:func:`lreid.results.gain_interval`). Means are over the seen and over the unseen test sets.

    Raises:
        InputError: the runs have no test set with the same identities.
    """
    rows: list[list[Any]] = []
    last = [last_figures(run) for run in (one, other)]
    for place, (name, kind) in enumerate((gallery["name"], gallery["kind"]) for gallery in one["galleries"]):
        first, second = (run.get("identity_ap", {}).get(name, {"ids": [], "ap": []}) for run in (one, other))
        if first["ap"] and second["ap"] and first["ids"] == second["ids"]:
            counts = first.get("queries") or [1] * len(first["ids"])
            draws = gain_draws(first["ap"][-1], second["ap"][-1], counts, seed=place)
            rows.append([name, kind, *(figures[f"test/{name}/mAP"] for figures in last), draws])
    if not rows:
        raise InputError(f"--compare: {' and '.join(names)} have no test set with the same identities; compare others")
    for kind in MEAN_KINDS:
        if len(own := [row[2:] for row in rows if row[1] == kind]) > 1:
            rows.append([f"{kind} mean", kind, *(sum(each) / len(own) for each in zip(*own, strict=True))])
    for row in rows:
        before, after, draws = row[2:]
        ends = " to ".join(number(end, signed=True) for end in np.quantile(draws, ENDS))
        row[2:] = [number(before), number(after), number(after - before, signed=True), ends]
    heads = ["test set", "kind", *(f"mAP, {name}" for name in names), "difference", "95 % interval"]
    return _formatted(heads, rows, format, 2)


def _computed_by(runs: Sequence[Results]) -> list[str]:
    """Return what computed runs, by :data:`COMPUTED_BY`; different values are separated by semicolons."""
    return ["; ".join(sorted({run.get("versions", {}).get(name, "") for run in runs})) for name in COMPUTED_BY]


def _comparison_csv(
    keys: Sequence[str],
    columns: Sequence[Column],
    figures: Sequence[tuple[Sequence[str], Sequence[Spread]]],
    computed_by: Sequence[Sequence[str]],
) -> str:
    """Format the comparison as CSV: text, a column for each mean and each standard deviation, and what computed it."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*keys, *(f"{column.key}{part}" for column in columns for part in ("", "_std")), *COMPUTED_BY])
    for (names, spreads), versions in zip(figures, computed_by, strict=True):
        numbers = ("" if value is None else f"{value:.4f}" for spread in spreads for value in spread)
        table.writerow([*names, *numbers, *versions])
    return text.getvalue()


def _unequal(runs: Sequence[Results]) -> tuple[Column, ...]:
    """Add a column of training images seen, if finished runs on a benchmark differ in this number."""
    counts: dict[str, set[int | None]] = {}
    for run in runs:
        if len(run["mAP"]) == len(run["tasks"]):
            counts.setdefault(run["benchmark"], set()).add(run.get("images_trained"))
    return (IMAGES_TRAINED,) if any(len(each) > 1 for each in counts.values()) else ()


def sensitivity_curve(runs: Sequence[Results], key: str) -> Figure:
    """Draw the seen mAP after the last task over values of one config key, as in Figure 4 of DwoPP (BMVC 2022).

    Runs that differ only in the key and in their seed form a line, with a band of one standard deviation (n - 1). The
    axis is logarithmic if the largest value is more than 10 times the smallest.
    """
    # Group the runs as if the key did not exist and, if it changes the data, as if all runs had the same protocol.
    finished = [run for run in runs if run["summary"]["seen_mAP"] is not None]
    others = [run | {"config": {k: run["config"][k] for k in run["config"] if k != key}} for run in finished]
    if key.startswith(DATA_KEYS):
        others = [run | {"protocol": None} for run in others]
    value_of = {id(other): run["config"][key] for other, run in zip(others, finished, strict=True)}

    def points(members: Sequence[Results]) -> Points:
        for value in sorted({value_of[id(run)] for run in members}):
            yield value, [run["summary"]["seen_mAP"] for run in members if value_of[id(run)] == value]

    groups = grouped(others)
    figure = new_figure(6, 4, layout="constrained")
    axes = figure.subplots()
    draw_lines(axes, lines_by_benchmark(groups, points))
    if min(value_of.values()) > 0 and max(value_of.values()) > 10 * min(value_of.values()):
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel="seen mAP (%)", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.suptitle(", ".join(dict.fromkeys(group.benchmark for group in groups)))
    return figure
