"""Compare runs in a table of means and standard deviations over seeds; rewrite report.html in each run folder.

    lreid report runs/synthetic-10/*                        # a table in the terminal
    lreid report runs/synthetic-10/* --format markdown      # or csv, latex
    lreid report runs/synthetic-10/* --per-set --format latex   # mAP and Rank-1 of every test set, for a paper
    lreid report --compare runs/one runs/other              # difference of two runs, with an interval
    lreid report runs/synthetic-10/* --cost                 # adds columns for exemplars, time and memory
    lreid report runs/synthetic-10/* --html compared.html   # one page about all runs
    lreid report runs/synthetic-10-dwopp-seed0 --images     # adds images to the report.html of the run

Runs that differ in protocol (identities, splits, cameras), config or AP convention are in separate rows.
If a run's report.html already shows images, lreid report rewrites this page only if you pass --images.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lreid.apps.arguments import add_imports, flag, option, require_path
from lreid.errors import InputError, require

if TYPE_CHECKING:
    from lreid.report.rendering import Panel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid report``."""
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folder")
    add_imports(parser)
    option(parser, "--format", "format of the table", "text", choices=("text", "markdown", "csv", "latex"))
    flag(parser, "--per-set", "show mAP and Rank-1 on every test set, as papers print them, instead of means")
    compared = "two runs: show the difference of their mAP on every test set, with a bootstrap interval over queries"
    option(parser, "--compare RUN", compared, nargs=2, type=Path)
    flag(parser, "--each", "show one row per run instead of means over seeds")
    flag(parser, "--cost", "add columns for exemplars, training time, peak memory and time per step")
    switches = "add columns for feature drift and gradients after task switches (needs EVAL.DRIFT_STEPS)"
    flag(parser, "--switches", switches)
    option(parser, "--html FILE", "also write one page about all runs", type=Path)
    images = "add ranked matches, activation maps and a feature map of the run with the first seed"
    flag(parser, "--images", f"{images}; needs checkpoints and data")
    flag(parser, "--blur", "blur the images on the page")


def run(args: argparse.Namespace) -> None:
    """Print the table and write the report pages."""
    from lreid.report.comparison import compare_table, comparison_table
    from lreid.report.page import links_in, write_page, write_report
    from lreid.report.sections import Pictures
    from lreid.report.tables import require_one_run_a_seed
    from lreid.results import read
    from lreid.utils.files import require_own

    if args.html:
        require_own(args.html)
    for path in [*args.runs, *(args.compare or ())]:
        require_path(path, "name the folder of a run that finished a task")
    if args.compare:
        require(args.format != "csv", "--format", "csv", "text, markdown or latex with --compare")
        one, other = map(read, args.compare)
        print(compare_table(one, other, [*map(str, args.compare)], args.format))
        if not args.runs:
            return
    if not args.runs:
        raise InputError("RUN: is missing; name the folder of a run, or two runs after --compare")
    folders = _folders(args.runs)
    if args.blur and not args.images:
        raise InputError("--blur: there are no images to blur; add --images")
    if args.images and len(folders) > 1 and not args.html:
        raise InputError("--images: for several runs, images are shown on a page about all runs; add --html FILE")
    runs = [read(folder) for folder in folders]
    if args.html or not args.each:  # the page shows means, so every seed may occur only once
        require_one_run_a_seed(runs, folders)
    options = {name: getattr(args, name) for name in ("each", "cost", "switches", "per_set")}
    table = comparison_table(runs, args.format, **options)
    print(table.rstrip("\n"))
    illustrated = [str(folder) for folder in folders if _shows_images(folder)]
    for folder in folders:
        if str(folder) not in illustrated:
            write_report(folder)
    if illustrated and not args.images:
        print(f"pages with images stay as they are: {', '.join(illustrated)}; --images rewrites one", file=sys.stderr)
    if args.html or args.images:
        path = args.html or folders[0] / "report.html"
        sections: list[Panel] = []
        pictures = Pictures()
        if args.images:
            from lreid.apps.visual import images_of_runs  # loads torch, which tables and charts do not need

            sections, pictures = images_of_runs(folders, runs, blur=args.blur)
        links = links_in(path.parent) if len(runs) == 1 else ()
        write_page(path, runs, folders=folders, pictures=pictures, more=sections, links=links)
        print(f"report: {path}", file=sys.stderr)


def _shows_images(folder: Path) -> bool:
    """Whether the page of a run shows images, which take a long time to make."""
    page = folder / "report.html"
    return page.is_file() and b"<img" in page.read_bytes()


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
