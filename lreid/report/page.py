"""Write a page about one or several runs: a single HTML file that works offline."""

import logging
import os
from collections.abc import Iterable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from lreid.errors import counted
from lreid.evaluation.observer import Observer
from lreid.report import sections
from lreid.report.plots import learning_curve, save_figure
from lreid.report.rendering import Cell, Panel, Table, TableRow, anchored, once, panel, render
from lreid.report.sections import TEXTS, Pictures, gain_rows, hardest, identity_forgetting
from lreid.report.tables import (
    OPTIONAL,
    TRANSFER,
    Column,
    Group,
    by_benchmark,
    cost_columns,
    duration,
    group_figures,
    grouped,
    labels,
    number,
    past_gallery_rows,
    result_columns,
    task_table,
)
from lreid.results import CROSSED, Results, average, averaged_kinds, is_trained, matrix
from lreid.results import read as read_results
from lreid.utils.files import files_below, write_text

logger = logging.getLogger("lreid")

ON_OFF: dict[bool | None, str] = {True: "on", False: "off"}
MOST_NAMED = 4  # maximum number of method names in a title

OPEN_SECTIONS = 2  # number of sections that are open at first
BESIDE = ("results.json", "config.yaml", "log.txt", "learning_curve.png")  # files of a run to which its page links


def write_report(run_dir: str | Path) -> Path:
    """Write ``report.html`` into the folder of a finished or unfinished run, and return its path.

    Raises:
        InputError: there are no results, or the page cannot be written.
    """
    path = Path(run_dir) / "report.html"
    write_page(path, [read_results(Path(run_dir) / "results.json")], links=links_in(path.parent))
    return path


class ReportObserver(Observer):
    """Print the table of finished tasks, and write the learning curve and the report into the run folder."""

    def after_save(self, folder: Path, results: Results) -> None:
        """Report all tasks so far."""
        logger.info("\n%s\n", task_table(results))
        if len(results["tasks"]) > 1:  # a curve needs two tasks
            save_figure(learning_curve([results]), folder / "learning_curve.png")
        write_report(folder)


def links_in(folder: Path) -> list[tuple[str, str]]:
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
    links: Sequence[tuple[str, str]] = (),
) -> None:
    """Write a page about finished or unfinished runs, atomically.

    The page needs no other file, is readable on a phone, and follows the light or dark mode of the reader. Runs are
    averaged in the same groups as by :func:`lreid.report.tables.grouped`.

    Args:
        path, runs: path of the page, and the content of each ``results.json``.
        folders: folders of the runs to which the page links, one per run, or empty.
        pictures, more, links: images of identities, more sections, and links to other files.
    """
    groups = grouped(runs)
    tables = [*comparison(groups), *cost(groups)] if len(runs) > 1 else []
    benchmarks = [
        ("; ".join(group.name for group in members), _of_benchmark(members, where, pictures))
        for members, where in by_benchmark(groups)
    ]
    every = [] if tables else _all_metrics(groups)
    facts = [*every, *settings(runs), *_folders(path, runs, folders)]
    everything = anchored([*tables, *(each for _, panels in benchmarks for each in panels), *more, *facts])
    left = iter(everything)
    page = render(
        "report.html",
        title=_title(runs),
        runs=runs,
        unfinished=[run for run in runs if len(run["mAP"]) < len(run["tasks"])],
        links=links,
        cards=headlines(runs[0]) if len(runs) == 1 else [],
        tables=list(islice(left, len(tables))),
        benchmarks=[(name, list(islice(left, len(panels)))) for name, panels in benchmarks],
        more=list(islice(left, len(more))),
        facts=list(left),
        all=everything,
        open=OPEN_SECTIONS if len(groups) > 1 else len(everything),
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


class Headline(NamedTuple):
    """A large number at the top of a page; ``tone`` is the CSS class of its colour: ``good``, ``bad`` or empty."""

    text: str
    label: str
    tone: str = ""


def headlines(results: Results) -> list[Headline]:
    """Make the large numbers of the summary; the sign of a difference such as forgetting determines its colour.

    If the run tested its initial model, the number of people who got worse replaces forgetting and plasticity.
    """
    changed = [row for row, _ in gain_rows(results)]
    shown = [
        Headline(f"{row['worse']} worse, {row['better']} better", f"of {row['people']} people in {row['test set']}")
        for row in changed[:2]
    ]
    for column in result_columns(main=True):
        if column.key == "mean_over_tasks_mAP" or column.key.startswith(OPTIONAL) or (changed and column.signed):
            continue
        if (value := results["summary"].get(column.key)) is not None:
            tone = ("good" if value > 0 else "bad" if value < 0 else "") if column.signed else ""
            shown.append(Headline(column.text(value), column.title, tone))
    return shown


def comparison(groups: Sequence[Group]) -> list[Panel]:
    """Show the metrics after the last task."""
    title, note = TEXTS["comparison"]
    return [panel("table.html", title, note, table=_group_table(title, groups, result_columns(), compared=True))]


def _all_metrics(groups: Sequence[Group]) -> list[Panel]:
    title, run = "All metrics", groups[0].runs[0]
    # With a single task, the mean over tasks equals the seen mAP.
    shown = [each for each in result_columns() if each.key != "mean_over_tasks_mAP" or len(run["mAP"]) > 1]
    table = _group_table(title, groups, [*shown, *TRANSFER])
    return [panel("table.html", title, "", table=table)] if run["summary"] else []


def cost(groups: Sequence[Group]) -> list[Panel]:
    """Show training images, exemplars, time and memory of each group."""
    columns = cost_columns([run for group in groups for run in group.runs])
    if all(mean is None for spreads in group_figures(groups, columns) for mean, _ in spreads):
        return []
    title, note = TEXTS["cost"]
    return [panel("table.html", title, note, table=_group_table(title, groups, columns))]


def _group_table(title: str, groups: Sequence[Group], columns: Sequence[Column], *, compared: bool = False) -> Table:
    """Make a row per group, with columns for benchmark and AP convention only if groups differ in them."""
    names = {"benchmark": [group.benchmark for group in groups], "AP": [group.ap for group in groups]}
    figures = group_figures(groups, columns)
    spreads = {column: [each[place] for each in figures] for place, column in enumerate(columns)}
    cells: dict[str, Sequence[str | Cell]] = {"method": [group.method for group in groups]}
    cells |= {head: each for head, each in names.items() if len(set(each)) > 1}
    cells |= {
        column.title: [Cell(column.text(*spread), spread[0]) for spread in each]
        for column, each in spreads.items()
        if any(mean is not None for mean, _ in each)
    }
    cells["tasks"] = [group.tasks for group in groups]
    cells["n"] = [Cell(str(len(group.runs)), len(group.runs)) for group in groups]
    rows = [TableRow(group.name, line) for group, line in zip(groups, zip(*cells.values(), strict=True), strict=True)]
    return Table(title, list(cells), rows, compared=compared)


def results_matrix(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show the results matrix of each group, averaged over runs; with several groups, a click opens a matrix."""
    averaged = [
        (group, label, mean_results(group.runs))
        for group, label in zip(groups, labels(groups), strict=True)
        if any(group.runs[0]["mAP"])  # the rows are empty if there are no test sets
    ]
    if not averaged:
        return []
    largest = max(max(row) for *_, results in averaged for row in results["mAP"]) or 1
    several = len(groups) > 1
    matrix_title, note = TEXTS["results_matrix"]
    matrices = [
        {
            "name": group.name,
            "title": label if several else matrix_title,
            "runs": counted(len(group.runs), "run"),
            "heads": _matrix_heads(results),
            "rows": [
                *_before(group, largest),
                *(
                    (f"{row + 1} {task}", _matrix_cells(results, row, largest))
                    for row, task in enumerate(results["tasks"][: len(results["mAP"])])
                ),
            ],
        }
        for group, label, results in averaged
    ]
    return [panel("matrix.html", f"{matrix_title}{where}", note, matrices=matrices, several=several)]


def past_galleries(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show the mAP of new models' queries in old models' galleries, for groups with ``EVAL.CROSS_MODEL``."""
    panels = []
    for (group, label), key in product(zip(groups, labels(groups), strict=True), CROSSED):
        heading, note = TEXTS["past_galleries" if key == "cross_model" else "mapped_galleries"]
        rows = past_gallery_rows([run for run in group.runs if run.get(key)], key)
        if len(rows) < 2:
            continue
        title = f"{heading}{where}" + (f", {label}" if len(groups) > 1 else "")
        lines = [
            TableRow(
                group.name,
                [
                    name,
                    *(Cell("" if x is None else number(x), x) for x in [*values, *(len(rows) - len(values)) * [None]]),
                ],
            )
            for name, values in rows
        ]
        heads = ["after task", *(f"gallery of {past + 1}" for past in range(len(rows)))]
        panels.append(panel("table.html", title, note, table=Table(title, heads, lines)))
    return panels


def mean_results(runs: Sequence[Results]) -> Results:
    """Copy the results of the first run, and replace the matrices ``mAP`` and ``rank1`` by means over all runs."""
    means: Any = {
        metric: [
            [sum(values) / len(values) for values in zip(*rows, strict=True)]
            for rows in zip(*(matrix(run, metric) for run in runs), strict=True)
        ]
        for metric in ("mAP", "rank1")
    }
    return runs[0] | means


def _matrix_heads(results: Results) -> list[tuple[str, str]]:
    """Return the name and kind of each column: the galleries, then the means over galleries."""
    heads = [(gallery["name"], str(gallery["kind"])) for gallery in results["galleries"]]
    return heads + [("mean", kind) for kind in averaged_kinds(results)]


def _before(group: Group, largest: float) -> list[tuple[str, list[dict[str, Any]]]]:
    """Make the initial model's row of the results matrix, if the group is a single run that tested this model."""
    run = group.runs[0]
    if len(group.runs) > 1 or not run.get("initial"):
        return []
    initial: Any = {metric: [run["initial"][metric]] for metric in ("mAP", "rank1")}
    return [("before training", _matrix_cells(run | initial, 0, largest, trained=False))]


def _matrix_cells(results: Results, row: int, largest: float, *, trained: bool = True) -> list[dict[str, Any]]:
    """Make a row of the matrix: ``kind`` (trained, before or mean), ``mAP``, ``rank1`` and ``depth`` of colour."""
    cells: list[dict[str, Any]] = []
    for gallery, value, rank1 in zip(results["galleries"], results["mAP"][row], results["rank1"][row], strict=True):
        kind = "trained" if gallery["kind"] != "seen" or (trained and is_trained(gallery, row)) else "before"
        cells.append({"kind": kind, "mAP": value, "rank1": rank1, "depth": 0.06 + 0.5 * value / largest})
    for kind in averaged_kinds(results):
        means = {metric: average(results, metric, row, kind) for metric in ("mAP", "rank1")}
        cells.append({"kind": "mean", **means})
    return cells


def made_by(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show the command of each group; for a single group, also the keys that differ from its config files."""
    commands = [
        (label, group.runs[0]["command"])
        for label, group in zip(labels(groups), groups, strict=True)
        if group.runs[0].get("command")
    ]
    if not commands:
        return []
    run = groups[0].runs[0]
    changed = run.get("changed", {}) if len(groups) == 1 else {}
    config = run.get("config") or {}
    rows = [TableRow("", [key, _cell(config.get(key)), _cell(value)]) for key, value in changed.items()]
    table = Table("Changed keys", ["key", "here", "in the files of method and benchmark"], rows) if rows else None
    title, note = TEXTS["made_by_changed" if rows else "made_by"]
    return [panel("made_by.html", f"{title}{where}", note, commands=commands, several=len(groups) > 1, table=table)]


def _cell(value: Any) -> str:
    return "–" if value is None else str(value)


def config_differences(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show the config keys in which the groups of a benchmark differ."""
    configs = [group.runs[0].get("config") or {} for group in groups]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = [
        TableRow("", [key, *(str(config.get(key, "–")) for config in configs)])
        for key in keys
        if key != "METHOD.NAME" and any(config.get(key) != configs[0].get(key) for config in configs)
    ]
    if not rows or len(groups) < 2:
        return []
    title, note = TEXTS["config_differences"]
    table = Table(title, ["key", *labels(groups)], rows)
    return [panel("table.html", f"{title}{where}", note, table=table)]


def protocol(groups: Sequence[Group], where: str) -> list[Panel]:
    """Show the protocol of the tests; only runs with the same protocol are comparable."""
    runs = [run for group in groups for run in group.runs]
    configs = [run.get("config") or {} for run in runs]
    galleries = {
        gallery["name"]: f"{counted(gallery['queries'], 'query')} in {gallery['gallery']}"
        for run in runs
        for gallery in run["galleries"]
        if "queries" in gallery
    }
    entries: list[tuple[str, Any]] = [
        ("fingerprint", _distinct(run.get("protocol") for run in runs)),
        ("average precision", _distinct(run["ap"] for run in runs)),
        ("metric", _distinct(config.get("EVAL.METRIC") for config in configs)),
        ("camera filter", _distinct(ON_OFF.get(config.get("EVAL.CAMERA_FILTER")) for config in configs)),
        ("searched by", _distinct(_searched(config) for config in configs)),
        ("flipped images added", _distinct(ON_OFF.get(config.get("EVAL.FLIP")) for config in configs)),
        ("cameras", _distinct(config.get("BENCHMARK.CAMERAS") for config in configs)),
        *(("test set " + name, facts) for name, facts in galleries.items()),
    ]
    return _facts(f"Protocol{where}", entries)


def settings(runs: Sequence[Results]) -> list[Panel]:
    """Show methods, data and versions of the runs, and the cost of a single run."""
    entries: list[tuple[str, Any]] = [
        ("method", _distinct(run["method"] for run in runs)),
        ("benchmark", _distinct(run["benchmark"] for run in runs)),
        ("seed", _distinct(run["seed"] for run in runs)),
    ]
    if len(runs) == 1:
        (run,) = runs
        seconds = run.get("seconds", {})
        memory, speed = run.get("peak_memory_mib"), run.get("images_per_second")
        entries += [
            ("stored exemplars", run.get("exemplars")),
            ("skipped images", run.get("skipped_images")),
            ("training time", duration(seconds["train"]) if "train" in seconds else None),
            ("evaluation time", duration(seconds["evaluate"]) if "evaluate" in seconds else None),
            ("training speed", f"{speed:.0f} images/s" if speed is not None else None),
            ("peak memory", f"{memory} MiB" if memory else None),
        ]
    packages = dict.fromkeys(name for run in runs for name in run.get("versions", {}))
    entries += [(name, _distinct(run.get("versions", {}).get(name) for run in runs)) for name in packages]
    return _facts("Settings and versions", entries)


def _facts(title: str, entries: Sequence[tuple[str, Any]]) -> list[Panel]:
    """Make a section of those entries that have a value."""
    stated = [(name, value) for name, value in entries if value is not None]
    return [panel("facts.html", title, "", facts=stated)] if stated else []


def _distinct(values: Iterable[Any]) -> str | None:
    """Join distinct values by commas; None if there are none."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or None


def _searched(config: dict[str, Any]) -> str | None:
    """Describe the ranking options of a run; None if it did not record them."""
    if config.get("EVAL.BACKEND") != "faiss":
        return config.get("EVAL.BACKEND")
    return f"faiss {config['EVAL.INDEX']}, {config['EVAL.INDEX_DEPTH']} images"


# In the order of a page; for each benchmark, a section is left out if the runs have no values for it.
SECTIONS = (
    sections.before_after,
    sections.learning_curves,
    results_matrix,
    past_galleries,
    sections.gallery_curves,
    sections.accuracy,
    sections.accuracy_within_tasks,
    sections.alignment,
    sections.forgetting,
    sections.weakest_parts,
    sections.losses,
    sections.drift,
    sections.feature_gradients,
)
PICTURED = (identity_forgetting, hardest)  # sections that may have images
FACTS = (made_by, config_differences, protocol)
