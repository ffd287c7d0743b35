"""One page about a run, or about many: a single HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from lreid.files import write_text
from lreid.report.chart_sections import (
    accuracy,
    alignment,
    drift,
    feature_gradients,
    forgetting,
    gallery_curves,
    learning_curves,
    losses,
)
from lreid.report.groups import grouped
from lreid.report.rendering import render
from lreid.report.table_sections import (
    cards,
    comparison,
    cost,
    differing_keys,
    hardest,
    past_galleries,
    protocol,
    results_matrix,
    settings,
)
from lreid.report.tables import counted
from lreid.results import Results
from lreid.results import read as read_results

MOST_NAMED = 4  # methods whose names have room in a title

SECTIONS = (
    learning_curves,
    results_matrix,
    past_galleries,
    gallery_curves,
    accuracy,
    alignment,
    forgetting,
    losses,
    drift,
    feature_gradients,
    hardest,
    differing_keys,
    protocol,
)


def write_report(run_dir: str | Path) -> Path:
    """Writes ``report.html`` into a run folder from the ``results.json`` in it.

    Args:
        run_dir: the run folder; the run may be unfinished.

    Returns:
        The path of the page.

    Raises:
        InputError: there are no results to read, or the page cannot be written.
    """
    path = Path(run_dir) / "report.html"
    write_page(path, [read_results(Path(run_dir) / "results.json")])
    return path


def write_page(path: Path, runs: Sequence[Results], *, more: Sequence[Markup] = ()) -> None:
    """Writes a page about runs.

    The page is whole in itself, readable on a phone and without JavaScript, and follows the reader's light or dark
    mode. It is written to a temporary file and renamed. Runs are averaged as
    :func:`lreid.report.groups.grouped` says; benchmarks have sections of their own.

    Args:
        path: of the page.
        runs: contents of ``results.json``; of unfinished runs too.
        more: sections with images, HTML.

    Raises:
        InputError: the page cannot be written.
    """
    groups = grouped(runs)
    names = list(dict.fromkeys(group.benchmark for group in groups))
    benchmarks = []
    for name in names:
        here = [group for group in groups if group.benchmark == name]
        where = f", {name}" if len(names) > 1 else ""
        sections = filter(None, (make(here, where) for make in SECTIONS))
        benchmarks.append(("; ".join(group.name for group in here), list(sections)))
    page = render(
        "report.html",
        title=_title(runs),
        intro=_intro(runs),
        unfinished=_unfinished(runs),
        cards=cards(runs[0]) if len(runs) == 1 else [],
        tables=[comparison(groups), cost(groups)] if len(runs) > 1 else [],
        benchmarks=benchmarks,
        more=more,
        settings=settings(runs),
    )
    write_text(path, page)


def _title(runs: Sequence[Results]) -> str:
    methods, benchmarks = (list(dict.fromkeys(run[key] for run in runs)) for key in ("method", "benchmark"))
    who = ", ".join(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods"
    where = ", ".join(benchmarks) if len(benchmarks) <= MOST_NAMED else f"{len(benchmarks)} benchmarks"
    return f"{who} on {where}"


def _intro(runs: Sequence[Results]) -> str:
    conventions = ", ".join(dict.fromkeys(run["ap"] for run in runs))
    figures = f"All figures in per cent; {conventions} average precision."
    if len(runs) == 1:
        (run,) = runs
        return f"Seed {run['seed']}, {len(run['tasks'])} tasks, {counted(len(run['galleries']), 'test set')}. {figures}"
    seeds = sorted({str(run["seed"]) for run in runs}, key=lambda seed: (len(seed), seed))
    return f"{len(runs)} runs, {counted(len(seeds), 'seed')} ({', '.join(seeds)}). {figures}"


def _unfinished(runs: Sequence[Results]) -> str:
    unfinished = [run for run in runs if len(run["mAP"]) < len(run["tasks"])]
    if not unfinished:
        return ""
    if len(runs) == 1:
        (run,) = runs
        return f"Unfinished: {len(run['mAP'])} of {len(run['tasks'])} tasks are done."
    return f"{len(unfinished)} of {len(runs)} runs are not finished; they stand in lines of their own."
