"""Compare runs in a table of means and standard deviations over seeds; rewrite report.html in each run folder.

    lreid report runs/synthetic-10/*                        # a table in the terminal
    lreid report runs/synthetic-10/* --format markdown      # or csv, latex
    lreid report runs/synthetic-10/* --cost                 # adds columns for exemplars, time and memory
    lreid report runs/synthetic-10/* --html compared.html   # one page about all runs
    lreid report runs/synthetic-10-dwopp-seed0 --images     # adds images to the report.html of the run

Runs that differ in protocol (identities, splits, cameras), config or AP convention are in separate rows.
If a run's report.html already shows images, as after lreid train on your own images, lreid report rewrites this page
only if you pass --images.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lreid.apps.arguments import option, require_path
from lreid.errors import InputError

if TYPE_CHECKING:
    from lreid.report.rendering import Panel
    from lreid.results import Results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid report``."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    option(parser, "--format", "format of the table", "text", choices=("text", "markdown", "csv", "latex"))
    parser.add_argument("--each", action="store_true", help="show one row per run instead of means over seeds")
    parser.add_argument(
        "--cost", action="store_true", help="add columns for exemplars, training time, peak memory and time per step"
    )
    parser.add_argument(
        "--switches",
        action="store_true",
        help="add columns for feature drift and gradients after task switches (needs EVAL.DRIFT_STEPS)",
    )
    option(parser, "--html FILE", "also write one page about all runs", type=Path)
    parser.add_argument(
        "--images",
        action="store_true",
        help="add ranked matches, activation maps and a feature map of the run with the first seed; needs checkpoints "
        "and data",
    )
    parser.add_argument("--blur", action="store_true", help="blur the images on the page")


def run(args: argparse.Namespace) -> None:
    """Print the table and write the report pages."""
    from lreid.report.identities import Pictures
    from lreid.report.page import links_in, write_page, write_report
    from lreid.report.tables import comparison_table, require_one_run_a_seed
    from lreid.utils.files import require_writable

    if args.html:
        require_writable(args.html)
    for path in args.runs:
        require_path(path, "name the folder of a run that finished a task")
    folders = _folders(args.runs)
    if args.blur and not args.images:
        raise InputError("--blur: there are no images to blur; add --images")
    if args.images and len(folders) > 1 and not args.html:
        raise InputError("--images: for several runs, images are shown on a page about all runs; add --html FILE")
    runs = read_runs(folders)
    if args.html or not args.each:  # the page shows means, so every seed may occur only once
        require_one_run_a_seed(runs, folders)
    table = comparison_table(runs, args.format, each=args.each, cost=args.cost, switches=args.switches)
    print(table.rstrip("\n"))
    illustrated = [str(folder) for folder in folders if _shows_images(folder)]
    for folder in folders:
        if str(folder) not in illustrated:
            write_report(folder)
    if illustrated and not args.images:
        print(
            f"pages that show images stay as they are: {', '.join(illustrated)}; pass --images to rewrite one",
            file=sys.stderr,
        )
    if args.html or args.images:
        path = args.html or folders[0] / "report.html"
        sections: list[Panel] = []
        pictures = Pictures()
        if args.images:
            from lreid.apps.visual import images_of_runs  # loads torch, which tables and charts do not need

            sections, pictures = images_of_runs(folders, runs, blur=args.blur)
        links = links_in(path.parent) if len(runs) == 1 else ()
        write_page(path, runs, folders=folders, pictures=pictures, more=sections, links=links)


def _shows_images(folder: Path) -> bool:
    """Whether the page of a run shows images, which take a long time to make."""
    page = folder / "report.html"
    return page.is_file() and b"<img" in page.read_bytes()


def read_runs(folders: Sequence[Path]) -> "list[Results]":
    """Read the results of runs to compare; config keys that are newer than a run get their defaults.

    If runs of a method record different options, every run gets all options of the method. Runs of early versions of
    lreid contain no config.
    """
    from lreid.config import leaves, load_config, recorded_config
    from lreid.methods import method_class, method_defaults, method_names
    from lreid.results import read

    runs = [read(folder) for folder in folders]
    by_method: dict[str, list[Results]] = {}
    for run in filter(lambda run: run.get("config"), runs):
        by_method.setdefault(run["method"], []).append(run)
    for method, same in by_method.items():
        cfg = load_config(overrides=["METHOD.NAME", method])
        defaults = dict(leaves(cfg))
        options = [{key for key in run["config"] if key.startswith("METHOD.")} - defaults.keys() for run in same]
        # The classes of methods need torch, which loads slowly.
        if any(each != options[0] for each in options) and cfg.METHOD.NAME in method_names():
            own = method_defaults(method_class(cfg.METHOD.NAME)).items()
            defaults = {f"METHOD.{name.upper()}": value for name, value in own} | defaults
        for run in same:
            run["config"] = recorded_config(defaults | run["config"])
    return runs


def _folders(named: list[Path]) -> list[Path]:
    """Return the run folders, each once, and skip other files and folders that ``runs/*`` may match."""
    folders: dict[Path, Path] = {}
    others = []
    for path in named:
        folder = path.parent if path.name == "results.json" else path
        if (folder / "results.json").exists():
            folders.setdefault(folder.resolve(), folder)
        else:
            others.append(str(path))
    if not folders:
        raise InputError(f"{others[0]}: contains no results.json; pass the folder of a run that finished a task")
    if others:
        print(f"skipped, because there is no results.json: {', '.join(others)}", file=sys.stderr)
    return list(folders.values())
