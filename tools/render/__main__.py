"""Render a data set of people who do not exist, from MakeHuman's assets in ROOT/makehuman.

    python tools/render people --domains 4 --workers 2      # the folder datasets/people
    python tools/render people.zip --height 128 --width 64  # one file

The command needs lreid's extra ``render``, and on Debian the packages libegl1 and libgl1-mesa-dri.
docs/how-to/datasets.md says where to get the assets.
"""

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[level]) for level in (1, 2)]

from lreid.apps.cli import run_tool
from lreid.errors import ArgumentError, InputError
from render import render

OPTIONS = {  # options of render.render with their defaults
    "domains": (6, "number of places; each has its own cameras, light and fashion"),
    "train_identities": (80, "people per domain to train on"),
    "test_identities": (60, "people per domain to search for"),
    "images": (6, "images per person"),
    "cameras": (4, "cameras per domain"),
    "height": (256, "height of the images in pixels"),
    "width": (128, "width of the images in pixels"),
    "seed": (0, "seed of domains and people"),
    "first_domain": (0, "number of the first domain, to add domains to those of an earlier call with the same seed"),
    "workers": (1, "number of processes"),
}


def parser() -> argparse.ArgumentParser:
    """Create the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="tools/render", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("name", metavar="NAME", help="new folder, or .zip file, in ROOT")
    made.add_argument(
        "--root", type=Path, default=Path("datasets"), metavar="DIR", help="DATA.ROOT (default: datasets)"
    )
    for option, (default, about) in OPTIONS.items():
        name = f"--{option.replace('_', '-')}"
        made.add_argument(name, type=int, default=default, metavar="N", help=f"{about} (default: {default})")
    return made


def run(args: argparse.Namespace) -> None:
    """Render the data set, and print how to use it."""
    out = args.root / args.name
    try:
        count = render(out, args.root / "makehuman", **{option: getattr(args, option) for option in OPTIONS})
    except ArgumentError as error:
        raise InputError(f"--{error.argument.replace('_', '-')} {error.fault}") from None
    key = "BENCHMARK.TRAIN" if args.train_identities else "BENCHMARK.UNSEEN"
    names = "" if out.suffix == ".zip" else f"; {key} \"['csv:{args.name}/index.csv']\""
    print(f"{out}: {count} images{names}")


if __name__ == "__main__":
    sys.exit(run_tool(parser(), run))
