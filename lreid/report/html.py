"""One page about a run, or about many: a single HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from lreid.files import write_text
from lreid.report.classification import accuracy, alignment
from lreid.report.curves import gallery_curves, learning_curves, losses
from lreid.report.details import differing_keys, hardest, protocol, settings
from lreid.report.forgetting import forgetting
from lreid.report.groups import grouped
from lreid.report.matrix import results_matrix
from lreid.report.overview import FILTER, cards, comparison, cost
from lreid.report.page import document
from lreid.report.results import Results, counted, read_results
from lreid.report.switches import drift, pull

MOST_NAMED = 4  # methods whose names have room in a title

SECTIONS = (
    learning_curves,
    results_matrix,
    gallery_curves,
    accuracy,
    alignment,
    forgetting,
    losses,
    drift,
    pull,
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


def write_page(path: Path, runs: Sequence[Results], *, more: Sequence[str] = (), style: str = "") -> None:
    """Writes a page about runs.

    The page is whole in itself, readable on a phone and without JavaScript, and follows the reader's light or dark
    mode. It is written to a temporary file and renamed. Runs are averaged as
    :func:`lreid.report.groups.grouped` says; benchmarks have sections of their own.

    Args:
        path: of the page.
        runs: contents of ``results.json``; of unfinished runs too.
        more: sections with pictures, HTML.
        style: what they need besides the style of all pages.

    Raises:
        InputError: the page cannot be written.
    """
    groups = grouped(runs)
    benchmarks = list(dict.fromkeys(group.benchmark for group in groups))
    body = [*(_head_of_one(runs[0]) if len(runs) == 1 else _head_of_many(runs))]
    if len(runs) > 1:
        body += [FILTER, comparison(groups), cost(groups)]
    for benchmark in benchmarks:
        here = [group for group in groups if group.benchmark == benchmark]
        where = f", {benchmark}" if len(benchmarks) > 1 else ""
        names = escape("; ".join(group.name for group in here))  # for the filter
        body += [f'<div data-name="{names}">', *(make(here, where) for make in SECTIONS), "</div>"]
    write_text(path, document(_title(runs), [*body, *more, settings(runs)], style=style))


def _title(runs: Sequence[Results]) -> str:
    methods, benchmarks = (list(dict.fromkeys(run[key] for run in runs)) for key in ("method", "benchmark"))
    who = ", ".join(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods"
    where = ", ".join(benchmarks) if len(benchmarks) <= MOST_NAMED else f"{len(benchmarks)} benchmarks"
    return f"{who} on {where}"


def _head_of_one(results: Results) -> list[str]:
    done, total = len(results["mAP"]), len(results["tasks"])
    return [
        f"<h1>{escape(_title([results]))}</h1>",
        f'<p class="soft">Seed {escape(str(results["seed"]))}, {total} tasks, '
        f"{counted(len(results['galleries']), 'test set')}. All figures in per cent; "
        f"{escape(results['ap'])} average precision.</p>",
        f'<p class="note">Unfinished: {done} of {total} tasks are done.</p>' if done < total else "",
        cards(results),
    ]


def _head_of_many(runs: Sequence[Results]) -> list[str]:
    seeds = sorted({str(run["seed"]) for run in runs}, key=lambda seed: (len(seed), seed))
    unfinished = sum(len(run["mAP"]) < len(run["tasks"]) for run in runs)
    return [
        f"<h1>{escape(_title(runs))}</h1>",
        f'<p class="soft">{len(runs)} runs, {counted(len(seeds), "seed")} ({escape(", ".join(seeds))}). All figures in '
        f"per cent; {escape(', '.join(dict.fromkeys(run['ap'] for run in runs)))} average precision.</p>",
        f'<p class="note">{unfinished} of {len(runs)} runs are not finished; they stand in lines of their own.</p>'
        if unfinished
        else "",
    ]
