"""The section on forgetting and plasticity: what every task takes from test identities and what it gives them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lreid.report.curves import Points, band_note, chart_grid, figure, lines_of, one_group, total_tasks
from lreid.report.groups import Group, labels
from lreid.report.page import Figure, Row, section, table
from lreid.report.results import Results, is_trained
from lreid.report.svg import Line, keys, line_chart, spread_ticks
from lreid.report.tables import mean_and_std, spread_text

SIDES = ("forgetting", "plasticity")
FIGURES = ("first mAP", "best mAP", "last mAP", *SIDES)


def task_changes(results: Results) -> list[tuple[float, float] | None]:
    """Forgetting (0 or less) and plasticity (0 or more) in every task but the first, in points of AP.

    From one task to the next the AP of a test identity falls or rises. Both are averages over all identities of the
    seen test sets that are trained by then (DwoPP, BMVC 2022, supplementary Table 4); their mean over tasks are the
    figures of the summary.

    Args:
        results: the content of ``results.json``.

    Returns:
        A pair for each finished task from the second on; None where there are no identities.
    """
    galleries = [gallery for gallery in results["galleries"] if gallery["name"] in results.get("identity_ap", {})]
    return [
        _falls_and_rises(
            [
                change
                for gallery in galleries
                if is_trained(gallery, row)
                for change in _identity_changes(results, gallery["name"], row)
            ]
        )
        for row in range(1, len(results["mAP"]))
    ]


def gallery_figures(results: Results, name: str) -> list[float | None]:
    """:data:`FIGURES` of a test set: its mAP after the task that first trains its domain (after the first task where
    none does), the best from there on and the last; and forgetting and plasticity of its identities, mean over tasks.

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
        return [None] * len(FIGURES)
    changes = [
        pair
        for row in range(max(1, start), len(results["mAP"]))
        if (pair := _falls_and_rises(_identity_changes(results, name, row)))
    ]
    falls, rises = (mean_and_std(each)[0] for each in zip(*changes, strict=True)) if changes else (None, None)
    return [values[0], max(values), values[-1], falls, rises]


def forgetting(groups: Sequence[Group], where: str) -> str:
    """Charts over the tasks, and a table by test set."""
    lines = {key: lines_of(groups, partial(_changes, side=side)) for side, key in enumerate(SIDES)}
    lines = {key: each for key, each in lines.items() if each}
    if not lines:
        return ""
    if len(groups) == 1:
        charts = [_chart(groups, "Points of AP", one_group(lines))]
    else:
        charts = [_chart(groups, key.capitalize(), each) for key, each in lines.items()]
    note = (
        "From task to task the AP of a test identity falls (forgetting) or rises (plasticity): mean over identities of "
        "the test sets that are trained by then. First mAP: after the task that trains the domain first."
        + band_note(groups)
    )
    return section(f"Forgetting and plasticity{where}", note, f"{chart_grid(groups, charts)}\n{_by_test_set(groups)}")


def _by_test_set(groups: Sequence[Group]) -> str:
    rows = []
    for group, label in zip(groups, labels(groups), strict=True):
        for gallery in group.runs[0]["galleries"]:
            figures = zip(*(gallery_figures(run, gallery["name"]) for run in group.runs), strict=True)
            spreads = [mean_and_std(values) for values in figures]
            cells = [
                Figure(spread_text(mean, std, signed=key in SIDES), mean)
                for key, (mean, std) in zip(FIGURES, spreads, strict=True)
            ]
            names = [*([label] if len(groups) > 1 else []), gallery["name"], gallery["kind"]]
            rows.append(Row(group.name, [*names, *cells]))
    heads = [*(["method"] if len(groups) > 1 else []), "test set", "kind", *FIGURES]
    return table("Forgetting by test set", heads, rows)


def _chart(groups: Sequence[Group], title: str, lines: Sequence[Line]) -> str:
    total = total_tasks(groups)
    ticks = [tick for tick in spread_ticks(total) if tick[0] > 1] or [(total, str(total))]
    chart = line_chart(
        lines, x_range=(min(2, total), total), x_label="task", x_ticks=ticks, title=f"{title} in every task", dots=True
    )
    return figure(title, chart, keys(lines) if len(groups) == 1 else "")


def _changes(runs: Sequence[Results], side: int) -> Points:
    """Forgetting (0) or plasticity (1) in each task from the second on."""
    for task, pairs in enumerate(zip(*map(task_changes, runs), strict=True), start=2):
        yield task, [pair and pair[side] for pair in pairs]


def _identity_changes(results: Results, name: str, row: int) -> list[float]:
    """What task ``row`` changes in the AP of each identity of a test set."""
    history = results.get("identity_ap", {}).get(name, {"ap": []})["ap"]
    if row >= len(history):
        return []
    return [after - before for before, after in zip(history[row - 1], history[row], strict=True)]


def _falls_and_rises(changes: Sequence[float]) -> tuple[float, float] | None:
    if not changes:
        return None
    return (
        sum(min(change, 0) for change in changes) / len(changes),
        sum(max(change, 0) for change in changes) / len(changes),
    )
