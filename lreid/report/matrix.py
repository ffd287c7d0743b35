"""The section with the results matrix, tasks by test sets, as a heat map that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lreid.report.groups import Group, labels
from lreid.report.page import scroll, section
from lreid.report.results import KINDS, Results, average, counted, is_trained, number


def results_matrix(groups: Sequence[Group], where: str) -> str:
    """The matrix of each group, the mean over its runs; of several groups each can be opened."""
    known = [(group, label) for group, label in zip(groups, labels(groups), strict=True) if group.runs[0]["mAP"]]
    largest = max((max(row) for group, _ in known for row in mean_results(group.runs)["mAP"]), default=0) or 1
    if len(groups) == 1:
        body = "".join(_matrix(mean_results(group.runs), largest, "Results matrix") for group, _ in known)
    else:
        body = "\n".join(
            f'<details data-name="{escape(group.name)}"><summary>{escape(label)} '
            f'<span class="soft">{counted(len(group.runs), "run")}</span></summary>'
            f"{_matrix(mean_results(group.runs), largest, label)}</details>"
            for group, label in known
        )
    note = "mAP after every task, Rank-1 below it. Dashed and slanted: before the domain was trained."
    return section(f"Results matrix{where}", note, body)


def mean_results(runs: Sequence[Results]) -> Results:
    """The first of the runs, with the mean of all in its matrices ``mAP`` and ``rank1``.

    Args:
        runs: of one group, so their matrices are alike.
    """
    return runs[0] | {
        metric: [
            [sum(values) / len(values) for values in zip(*rows, strict=True)]
            for rows in zip(*(run[metric] for run in runs), strict=True)
        ]
        for metric in ("mAP", "rank1")
    }


def _matrix(results: Results, largest: float, title: str) -> str:
    galleries = results["galleries"]
    kinds = [kind for kind in KINDS if any(gallery["kind"] == kind for gallery in galleries)]
    heads = "".join(
        f'<th scope="col">{escape(gallery["name"])}<br><span class="soft">{escape(gallery["kind"])}</span></th>'
        for gallery in galleries
    ) + "".join(f'<th scope="col">mean<br><span class="soft">{kind}</span></th>' for kind in kinds)
    lines = []
    for row, task in enumerate(results["tasks"][: len(results["mAP"])]):
        cells = []
        for column, gallery in enumerate(galleries):
            value, rank1 = results["mAP"][row][column], results["rank1"][row][column]
            figures = f"{number(value)}<small>{number(rank1)}</small>"
            if gallery["kind"] != "seen" or is_trained(gallery, row):
                cells.append(f'<td style="--depth:{0.06 + 0.5 * value / largest:.2f}">{figures}</td>')
            else:
                cells.append(f'<td class="before" title="before its domain was trained">{figures}</td>')
        for kind in kinds:
            mean, rank1 = (average(results, metric, row, kind) for metric in ("mAP", "rank1"))
            cells.append(f'<td class="mean">{number(mean)}<small>{number(rank1)}</small></td>')
        name = escape(task)
        lines.append(f'<tr><th scope="row" title="{name}">{row + 1} {name}</th>{"".join(cells)}</tr>')
    head = f'<thead><tr><th scope="col">after task</th>{heads}</tr></thead>'
    return scroll(f"<table>{head}<tbody>{''.join(lines)}</tbody></table>", title, "matrix")
