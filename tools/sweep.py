#!/usr/bin/env python
"""Trains several methods with several seeds on one benchmark and writes one table and one picture of curves.

    python tools/sweep.py --out runs/synthetic-10                     # the table of the README
    python tools/sweep.py --config configs/benchmarks/synthetic-domains.yaml --out runs/domains
    python tools/sweep.py --methods dwopp dwpp --seeds 0 1 --out runs/temperature METHOD.TEMPERATURE 2.0

Goes on where it stopped: finished runs are not made again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.cli import run_tool
from lreid.training.sweep import sweep


def main(args: argparse.Namespace) -> None:
    print(sweep(args.config, args.methods, args.seeds, args.out, args.overrides))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", type=Path, action="append", default=[], metavar="FILE",
        help="benchmark; may be given several times, later files win (default: the built-in one)",
    )  # fmt: skip
    parser.add_argument("--methods", nargs="+", default=["dmml_ft", "dwpp", "dwopp", "joint"], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the runs and the table"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config for all runs")
    sys.exit(run_tool(parser, main))
