#!/usr/bin/env python
"""Shows which data sets are there, compares them with the published counts, and prepares their archives.

    python tools/datasets.py list                                     # all of them, and where each is expected
    python tools/datasets.py check market1501 viper                   # every difference from the published counts
    python tools/datasets.py check csv:shop/index.csv --sheet shop.html      # with pictures of some identities
    python tools/datasets.py prepare cuhk_sysu --archive ~/Downloads/CUHK-SYSU.zip

Exit status: 2 when a data set is checked or prepared and is not complete.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps.cli import run_tool
from lreid.data.contact_sheet import contact_sheet
from lreid.data.datasets import specs
from lreid.data.inventory import look, table
from lreid.data.prepare import prepare
from lreid.errors import InputError
from lreid.files import write_text


def main(args: argparse.Namespace) -> None:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["list", "check", "prepare"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets, as in BENCHMARK.TRAIN")
    parser.add_argument("--root", type=Path, default=Path("datasets"), help="DATA.ROOT (default: datasets)")
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
    sys.exit(run_tool(parser, main))
