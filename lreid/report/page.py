"""Write a page about one or several runs: a single HTML file that works offline."""

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from lreid.errors import counted
from lreid.report.chart_sections import (
    accuracy,
    accuracy_within_tasks,
    alignment,
    drift,
    feature_gradients,
    forgetting,
    gallery_curves,
    learning_curves,
    losses,
)
from lreid.report.groups import Group, by_benchmark, grouped
from lreid.report.identity_forgetting import Pictures, identity_forgetting
from lreid.report.rendering import Panel, anchored, once, panel, render
from lreid.report.table_sections import (
    cards,
    comparison,
    cost,
    differing_keys,
    hardest,
    made_by,
    past_galleries,
    protocol,
    results_matrix,
    settings,
)
from lreid.results import Results
from lreid.results import read as read_results
from lreid.utils.files import files_below, write_text

MOST_NAMED = 4  # maximum number of method names in a title

SECTIONS = (
    learning_curves,
    results_matrix,
    past_galleries,
    gallery_curves,
    accuracy,
    accuracy_within_tasks,
    alignment,
    forgetting,
    losses,
    drift,
    feature_gradients,
)
PICTURED = (identity_forgetting, hardest)  # sections that may have images
FACTS = (made_by, differing_keys, protocol)
OPEN = 2  # number of sections that are open at first
BESIDE = ("results.json", "config.yaml", "log.txt", "learning_curve.png")  # files of a run to which its page links
Links = Sequence[tuple[str, str]]  # text and address


def write_report(run_dir: str | Path) -> Path:
    """Write ``report.html`` into the folder of a finished or unfinished run, and return its path.

    Raises:
        InputError: there are no results, or the page cannot be written.
    """
    path = Path(run_dir) / "report.html"
    write_page(path, [read_results(Path(run_dir) / "results.json")], links=links_in(path.parent))
    return path


def links_in(folder: Path) -> Links:
    """List links from the page of a run to other files in its folder: :data:`BESIDE` and pages of ``lreid test``."""
    links = [(name, name) for name in BESIDE if (folder / name).exists()]
    for page in files_below(folder / "test"):
        if page.name != "ranked.html":
            continue
        below = page.relative_to(folder)
        name = "/".join(below.parts[1:-1])
        links.append((f"ranked images{', ' * bool(name)}{name}", quote(below.as_posix())))
    return links


def write_page(
    path: Path,
    runs: Sequence[Results],
    *,
    folders: Sequence[Path] = (),
    pictures: Pictures = Pictures(),  # noqa: B008 (immutable)
    more: Sequence[Panel] = (),
    links: Links = (),
) -> None:
    """Write a page about finished or unfinished runs, atomically.

    The page needs no other file, is readable on a phone, and follows the light or dark mode of the reader. Runs are
    averaged in the same groups as by :func:`lreid.report.groups.grouped`.

    Args:
        path, runs: path of the page, and the content of each ``results.json``.
        folders: folders of the runs to which the page links, one per run, or empty.
        pictures, more, links: images of identities, more sections, and links to other files.

    Raises:
        InputError: the page cannot be written.
    """
    groups = grouped(runs)
    tables = [*comparison(groups), *cost(groups)] if len(runs) > 1 else []
    benchmarks = [
        ("; ".join(group.name for group in members), _of_benchmark(members, where, pictures))
        for members, where in by_benchmark(groups)
    ]
    facts = [*settings(runs), *_folders(path, runs, folders)]
    everything = anchored([*tables, *(each for _, panels in benchmarks for each in panels), *more, *facts])
    left = iter(everything)
    page = render(
        "report.html",
        title=_title(runs),
        intro=_intro(runs),
        links=links,
        state=_unfinished(runs),
        cards=cards(runs[0]) if len(runs) == 1 else [],
        tables=list(islice(left, len(tables))),
        benchmarks=[(name, list(islice(left, len(panels)))) for name, panels in benchmarks],
        more=list(islice(left, len(more))),
        facts=list(left),
        all=everything,
        open=OPEN if len(groups) > 1 else len(everything),
    )
    write_text(path, once(page))


def _of_benchmark(groups: Sequence[Group], where: str, pictures: Pictures) -> list[Panel]:
    """Make the sections about the groups of one benchmark."""
    panels = [each for make in SECTIONS for each in make(groups, where)]
    panels += [each for make in PICTURED for each in make(groups, where, pictures)]
    return panels + [each for make in FACTS for each in make(groups, where)]


def _folders(page: Path, runs: Sequence[Results], folders: Sequence[Path]) -> list[Panel]:
    """Make links from the page of several runs to the page of each run."""
    entries = []
    for run, folder in zip(runs, folders, strict=len(folders) > 0):
        below = Path(os.path.relpath(folder, page.parent))
        inside = [("report", "report.html"), *links_in(folder)]
        links = [(text, f"{quote(below.as_posix())}/{address}") for text, address in inside]
        entries.append((f"{run['method']} on {run['benchmark']}, seed {run['seed']}", links))
    return [panel("runs.html", "Runs", "", runs=entries)] if len(entries) > 1 else []


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
        tasks, tests = counted(len(run["tasks"]), "task"), counted(len(run["galleries"]), "test set")
        return f"Seed {run['seed']}, {tasks}, {tests}. {figures}"
    seeds = sorted({str(run["seed"]) for run in runs}, key=lambda seed: (len(seed), seed))
    return f"{len(runs)} runs, {counted(len(seeds), 'seed')} ({', '.join(seeds)}). {figures}"


def _unfinished(runs: Sequence[Results]) -> str:
    unfinished = [run for run in runs if len(run["mAP"]) < len(run["tasks"])]
    if not unfinished:
        return ""
    if len(runs) == 1:
        (run,) = runs
        return f"Unfinished: {len(run['mAP'])} of {counted(len(run['tasks']), 'task')} done."
    return f"Unfinished runs, each with a separate line: {len(unfinished)} of {len(runs)} runs."
