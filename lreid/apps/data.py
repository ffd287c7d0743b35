"""Show which data sets are there, compare them with published counts, prepare their archives, and render people.

    lreid data list                                     # all of them, and where each is expected
    lreid data check market1501 viper                   # every difference from the published counts
    lreid data check csv:shop/index.csv --sheet shop.html      # with images of some identities
    lreid data prepare cuhk_sysu --archive ~/Downloads/CUHK-SYSU.zip
    lreid data render people --domains 4 --workers 2    # rendered people, from the assets in ROOT/makehuman

Exit status: 2 when a data set is checked or prepared and is not complete.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lreid.data.contact_sheet import contact_sheet
from lreid.data.datasets import specs
from lreid.data.inventory import look, table
from lreid.data.prepare import prepare
from lreid.errors import ArgumentError, InputError
from lreid.files import write_text

RENDERING = {  # options of lreid.data.rendered.render
    "domains": (6, "places with cameras, light and fashion of their own"),
    "train_identities": (80, "people to train on, of each domain"),
    "test_identities": (60, "people to search for, of each domain"),
    "images": (6, "images of each person"),
    "cameras": (4, "cameras of each domain"),
    "height": (256, "of images, pixels"),
    "width": (128, "of images, pixels"),
    "seed": (0, "another one makes other domains and other people"),
    "workers": (1, "processes that draw"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid data``."""
    parser.add_argument("action", choices=["list", "check", "prepare", "render"], help="what to do, see above")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="data sets, as in BENCHMARK.TRAIN; of render the new folder in ROOT"
    )
    parser.add_argument(
        "--root", type=Path, default=Path("datasets"), metavar="DIR", help="DATA.ROOT (default: datasets)"
    )
    parser.add_argument(
        "--archive",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="zip or tar file to unpack; may be given several times",
    )
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write an HTML page with some identities")
    parser.add_argument("--identities", type=int, default=12, metavar="N", help="identities on the page (default: 12)")
    rendering = parser.add_argument_group("render")
    for option, (default, about) in RENDERING.items():
        rendering.add_argument(
            f"--{option.replace('_', '-')}",
            type=int,
            default=default,
            metavar="N",
            help=f"{about} (default: {default})",
        )


def run(args: argparse.Namespace) -> None:
    """Prepares what is to be prepared and prints the table of what is there."""
    if args.action == "render":
        _render(args)
        return
    if args.action != "list" and not args.names:
        raise InputError(f"{args.action}: name a data set; list shows all")
    if args.identities < 1:
        raise InputError(f"--identities is {args.identities}; must be 1 or more")
    if args.action == "prepare":
        if len(args.names) > 1 and args.archive:
            raise InputError("prepare: name one data set for --archive")
        for name in args.names:
            prepare(name, args.root, args.archive)
    names = args.names or list(specs())
    findings = [finding for name in names for finding in look(name, args.root, files=args.action != "list")]
    print(table(findings))
    if args.sheet is not None:
        data_sets = [finding.data_set for finding in findings if finding.data_set is not None]
        write_text(args.sheet, contact_sheet(data_sets, identities=args.identities))
        print(f"contact sheet: {args.sheet}")
    wrong = [finding.name for finding in findings if finding.status not in ("complete", "there")]
    if wrong and args.action != "list":
        raise InputError(f"not complete: {', '.join(wrong)}")


def _render(args: argparse.Namespace) -> None:
    if len(args.names) != 1:
        raise InputError("render: name one folder to make")
    from lreid.data.rendered import render  # SciPy and OpenGL, which no other command needs

    out = args.root / args.names[0]
    try:
        count = render(out, args.root / "makehuman", **{option: getattr(args, option) for option in RENDERING})
    except ArgumentError as error:
        raise InputError(f"--{error.argument.replace('_', '-')} {error.fault}") from None
    print(f"{out}: {count} images; BENCHMARK.TRAIN \"['csv:{args.names[0]}/index.csv']\"")
