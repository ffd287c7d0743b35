"""Compare runs in a table, and write their report pages."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lreid.config import leaves, load_config, recorded_config
from lreid.errors import InputError
from lreid.methods import method_class, method_defaults, method_names
from lreid.report.groups import grouped, require_one_run_a_seed
from lreid.report.identity_forgetting import Pictures
from lreid.report.page import links_in, write_page, write_report
from lreid.report.rendering import Panel, inside
from lreid.report.tables import comparison_table
from lreid.results import Results, read


def run(args: argparse.Namespace) -> None:
    """Print the table and write the report pages."""
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
        sections, pictures = _images_of_runs(folders, runs, args.blur) if args.images else ([], Pictures())
        links = links_in(path.parent) if len(runs) == 1 else ()
        write_page(path, runs, folders=folders, pictures=pictures, more=sections, links=links)


def with_images(folder: Path) -> None:
    """Write ``report.html`` of a run with images of its test identities."""
    runs = read_runs([folder])
    sections, pictures = _images_of_runs([folder], runs, blur=False)
    write_page(folder / "report.html", runs, pictures=pictures, more=sections, links=links_in(folder))


def _shows_images(folder: Path) -> bool:
    """Whether the page of a run shows images, which take a long time to make."""
    page = folder / "report.html"
    return page.is_file() and b"<img" in page.read_bytes()


def read_runs(folders: Sequence[Path]) -> list[Results]:
    """Read the results of runs to compare; config keys that are newer than a run get their defaults.

    If runs of a method record different options, every run gets all options of the method. Runs of early versions of
    lreid contain no config.

    Raises:
        InputError: :func:`lreid.results.read` raises an error.
    """
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


def _images_of_runs(folders: list[Path], runs: list[Results], blur: bool) -> tuple[list[Panel], Pictures]:
    """Return page sections about the first run of each group, and images of identities."""
    from lreid.apps.visual import image_sections, pictures_of  # loads torch, which tables and charts do not need

    groups = grouped(runs)
    places = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
    first = {group.name: places[id(group.runs[0])] for group in groups}
    sections: list[Panel] = []
    for group in groups:
        shown = image_sections(first[group.name], blur=blur)
        sections += [inside(f"Images, {group.method} on {group.benchmark}", group.name, shown)] if groups[1:] else shown
    return sections, pictures_of(groups, first, blur=blur)
