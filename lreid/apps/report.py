"""Compare runs: mean and standard deviation over the seeds of each method, and a fresh report.html in each run folder.

    lreid report runs/synthetic-10/*                        # a table for the terminal
    lreid report runs/synthetic-10/* --format markdown      # or csv, latex
    lreid report runs/synthetic-10/* --cost                 # with exemplars, time and memory
    lreid report runs/synthetic-10/* --html compared.html   # one page about all of them
    lreid report runs/synthetic-10-dwopp-seed0 --images   # ranked matches and maps in its report.html

Runs under different protocols (identities, splits, cameras), configs or AP conventions never share a row.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from markupsafe import Markup

from lreid.apps.sweep import read_run
from lreid.apps.visual import image_sections
from lreid.errors import InputError
from lreid.report import comparison_table, write_page, write_report
from lreid.report.groups import grouped, require_one_run_a_seed
from lreid.results import Results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid report``."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    parser.add_argument(
        "--format", choices=("text", "markdown", "csv", "latex"), default="text", help="of the table (default: text)"
    )
    parser.add_argument("--each", action="store_true", help="a line for each run, not the mean over seeds")
    parser.add_argument("--cost", action="store_true", help="add exemplars, training time, peak memory, time a step")
    parser.add_argument(
        "--switches", action="store_true", help="add drift and gradients after task switches (EVAL.DRIFT_STEPS)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page about all runs as well")
    parser.add_argument(
        "--images",
        "--pictures",  # as it was called
        action="store_true",
        help="on it, or on the page of a single run: ranked matches, activation maps and a map of features; needs the "
        "checkpoints and the data, and of several seeds takes the first",
    )
    parser.add_argument("--blur", action="store_true", help="blur the images, to show them around")


def run(args: argparse.Namespace) -> None:
    """Prints the table and writes the pages."""
    folders = _folders(args.runs)
    if args.blur and not args.images:
        raise InputError("--blur: there are no images to blur; add --images")
    if args.images and len(folders) > 1 and not args.html:
        raise InputError("--images: images of several runs go on a page about all of them; add --html FILE")
    runs = [read_run(folder) for folder in folders]
    if args.html or not args.each:  # the page shows means
        require_one_run_a_seed(runs, folders)
    table = comparison_table(runs, args.format, each=args.each, cost=args.cost, switches=args.switches)
    print(table.rstrip("\n"))
    for folder in folders:
        write_report(folder)
    if args.html or args.images:
        sections = _images_of_runs(folders, runs, args.blur) if args.images else []
        write_page(args.html or folders[0] / "report.html", runs, more=sections)


def _folders(named: list[Path]) -> list[Path]:
    """The run folders that are meant, each once; what else ``runs/*`` matches is passed over."""
    folders: dict[Path, Path] = {}
    others = []
    for path in named:
        if not path.exists():
            raise InputError(f"{path}: no such folder; name the folder of a run that finished a task")
        folder = path.parent if path.name == "results.json" else path
        if (folder / "results.json").exists():
            folders.setdefault(folder.resolve(), folder)
        else:
            others.append(str(path))
    if not folders:
        raise InputError(f"{others[0]}: holds no results.json; name the folder of a run that finished a task")
    if others:
        print(f"passed over, without results.json: {', '.join(others)}", file=sys.stderr)
    return list(folders.values())


def _images_of_runs(folders: list[Path], runs: list[Results], blur: bool) -> list[Markup]:
    """Sections about the first run of each group."""
    groups = grouped(runs)
    sections: list[Markup] = []
    for group in groups:
        folder = next(each for each, run in zip(folders, runs, strict=True) if run is group.runs[0])
        where = f", {group.method} on {group.benchmark}" if len(groups) > 1 else ""
        sections += image_sections(folder, where, blur=blur)
    return sections
