"""The top of a page: the figures of one run as cards, those of several as tables."""

from __future__ import annotations

from collections.abc import Sequence

from lreid.report.groups import Group
from lreid.report.page import Figure, Row, section, table
from lreid.report.results import Results, number
from lreid.report.tables import COST, FIGURES, Column, group_figures, spread_text

PLAIN = (
    ("seen_mAP", "mAP, seen"),
    ("seen_rank1", "Rank-1, seen"),
    ("unseen_mAP", "mAP, unseen"),
    ("unseen_rank1", "Rank-1, unseen"),
    ("mean_over_tasks_mAP", "mAP, mean over tasks"),
    ("forward_transfer", "forward transfer"),
)
SIGNED = (
    ("forgetting", "forgetting per task"),
    ("plasticity", "plasticity per task"),
    ("backward_transfer", "backward transfer"),
)
# Hidden until the script is there that it needs.
FILTER = (
    '<div class="filter off"><label for="filter">Filter</label> <input id="filter" type="search" '
    'placeholder="benchmark or method" autocomplete="off"><output for="filter" aria-live="polite"></output></div>'
)


def cards(results: Results) -> str:
    """Figures of the summary; forgetting and its like with their sign, coloured by it."""
    summary = results["summary"]
    shown = [
        f'<div class="card"><b>{number(summary[key])}</b><span>{label}</span></div>'
        for key, label in PLAIN
        if summary.get(key) is not None
    ]
    for key, label in SIGNED:
        value = summary.get(key)
        if value is not None:
            tone = "good" if value > 0 else "bad" if value < 0 else ""
            text = number(value, signed=True)
            shown.append(f'<div class="card"><b class="{tone}">{text}</b><span>{label}</span></div>')
    return f'<div class="cards">{"".join(shown)}</div>' if shown else ""


def comparison(groups: Sequence[Group]) -> str:
    """The figures after the last task."""
    note = (
        "After the last task; mean ± standard deviation over seeds (n - 1). Runs of another protocol, config or AP "
        "convention stand in lines of their own. forgetting and plasticity: per task."
    )
    return section("Comparison", note, _group_table("Comparison", groups, FIGURES))


def cost(groups: Sequence[Group]) -> str:
    """Exemplars, time and memory."""
    if all(mean is None for spreads in group_figures(groups, COST) for mean, _ in spreads):
        return ""
    note = "Times are of the processor where a run has them, else of the clock."
    return section("Cost", note, _group_table("Cost", groups, COST))


def _group_table(title: str, groups: Sequence[Group], columns: Sequence[Column]) -> str:
    """A line a group. Benchmark and AP convention, which the head of the page names, only where these differ."""
    names = {"benchmark": [group.benchmark for group in groups], "AP": [group.ap for group in groups]}
    figures = group_figures(groups, columns)
    spreads = {column: [each[place] for each in figures] for place, column in enumerate(columns)}
    cells: dict[str, Sequence[str | Figure]] = {"method": [group.method for group in groups]}
    cells |= {head: each for head, each in names.items() if len(set(each)) > 1}
    cells |= {
        column.title: [Figure(spread_text(*spread, column.digits, column.signed), spread[0]) for spread in each]
        for column, each in spreads.items()
        if any(mean is not None for mean, _ in each)
    }
    cells["tasks"] = [group.tasks for group in groups]
    cells["n"] = [Figure(str(len(group.runs)), len(group.runs)) for group in groups]
    rows = [Row(group.name, line) for group, line in zip(groups, zip(*cells.values(), strict=True), strict=True)]
    return table(title, list(cells), rows, compared=columns is FIGURES)
