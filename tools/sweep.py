#!/usr/bin/env python
"""Trains methods x benchmarks x seeds x values of keys; writes one table and one picture of curves.

    python tools/sweep.py --out runs/synthetic-10                     # the table of the README
    python tools/sweep.py --config configs/benchmarks/synthetic-domains.yaml --out runs/domains
    python tools/sweep.py --methods dwopp dwpp --benchmarks configs/benchmarks/synthetic-*.yaml --out runs/all --jobs 2
    python tools/sweep.py --methods dwopp --seeds 0 1 --out runs/slow TRAIN.LR 5e-4

Goes on where it stopped: finished runs are not made again. A run that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps.cli import run_tool
from lreid.apps.sweep import plan, sweep
from lreid.errors import InputError

EPILOG = """the ablations of DwoPP (BMVC 2022), here on the built-in benchmark; --config takes another one:

  Figure 4 (a), the weight of the distillation, and (b, c), the temperature, between the ends that the text names:
    python tools/sweep.py --methods dwopp --vary METHOD.DISTILLATION_WEIGHT 0.1 0.5 1 2 10 --out runs/weight
    python tools/sweep.py --methods dwopp dwpp --vary METHOD.TEMPERATURE 0.1 0.5 1 2 10 --out runs/temperature
  Table 3, positive and negative pairs decoupled (beta -1 stands for 1 - rho, which is DwPP):
    python tools/sweep.py --methods decoupled --vary METHOD.ALPHA,METHOD.BETA 0,1 0.1,0.9 0.3,0.7 0.5,0.5 1,0 1,-1 \\
        --out runs/decoupled METHOD.TEMPERATURE 1.0
  Figure 6, three random orders of the identities:
    python tools/sweep.py --vary BENCHMARK.ORDER_SEED 0 1 2 --seeds 0 --out runs/orders BENCHMARK.ORDER random
"""


def main(args: argparse.Namespace) -> None:
    if args.jobs < 1:
        raise InputError(f"--jobs {args.jobs}: must be 1 or more")
    vary = {key: values for key, *values in args.vary}
    for key, values in vary.items():
        if not values:
            raise InputError(f"--vary {key}: name the values that it shall have")
    for key, count in Counter(key for keys, *_ in args.vary for key in keys.split(",")).items():
        if count > 1:
            raise InputError(f"--vary {key}: is named {count} times; give all its values at once")
    runs = plan(
        args.out,
        args.methods,
        args.seeds,
        files=args.config,
        benchmarks=args.benchmarks,
        vary=vary,
        overrides=args.overrides,
    )
    if args.dry_run:
        for run in runs:
            if not run.is_finished():
                print(shlex.join(run.command))
        return
    table, failed = sweep(runs, args.out, jobs=args.jobs, key=next(iter(vary)) if len(vary) == 1 else "")
    print(table)
    for folder, reason in failed.items():
        print(f"{folder}: {reason}", file=sys.stderr)
    if failed:
        raise InputError(
            f"{len(failed)} of {len(runs)} runs failed; mend what is said above, then give the same command again"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="config of all runs; may be given several times, later files win (default: the built-in benchmark)",
    )
    parser.add_argument(
        "--benchmarks",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="config files of which each run takes one, on top of --config",
    )
    parser.add_argument("--methods", nargs="+", default=["dmml_ft", "dwpp", "dwopp", "joint"], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    parser.add_argument(
        "--vary",
        nargs="+",
        action="append",
        default=[],
        metavar="WORD",
        help="KEY VALUE VALUE ...: runs with each value; given again, every value with every other. "
        "KEY,KEY V,V V,V ...: keys that vary together",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands of the runs to be made")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the runs and the table")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY VALUE", help="keys of the config for all runs, behind --out DIR"
    )
    sys.exit(run_tool(parser, main))
