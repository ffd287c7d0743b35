"""Train methods x benchmarks x seeds x values of keys; write one table and one plot of learning curves.

    lreid sweep --out runs/synthetic-10                     # the table of the README
    lreid sweep --config configs/benchmarks/synthetic-domains.yaml --out runs/domains
    lreid sweep --methods dwopp dwpp --benchmarks configs/benchmarks/synthetic-*.yaml --out runs/all --jobs 2
    lreid sweep --methods dwopp --seeds 0 1 --out runs/slow TRAIN.LR 5e-4

Continues where it stopped: finished runs are not made again. A run that fails does not stop the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lreid.apps.cli import add_config

EPILOG = """the ablations of DwoPP (BMVC 2022), here on the built-in benchmark; --config takes another one:

  Figure 4 (a), the weight of the distillation, and (b, c), the temperature, between the ends that the text names:
    lreid sweep --methods dwopp --vary METHOD.DISTILLATION_WEIGHT 0.1 0.5 1 2 10 --out runs/weight
    lreid sweep --methods dwopp dwpp --vary METHOD.TEMPERATURE 0.1 0.5 1 2 10 --out runs/temperature
  Table 3, positive and negative pairs decoupled (beta -1 stands for 1 - rho, which is DwPP):
    lreid sweep --methods decoupled --vary METHOD.ALPHA,METHOD.BETA 0,1 0.1,0.9 0.3,0.7 0.5,0.5 1,0 1,-1 \\
        --out runs/decoupled METHOD.TEMPERATURE 1.0
  Figure 6, three random orders of the identities:
    lreid sweep --vary BENCHMARK.ORDER_SEED 0 1 2 --seeds 0 --out runs/orders BENCHMARK.ORDER random
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid sweep``."""
    parser.epilog = EPILOG
    add_config(parser, "config of all runs (default: the built-in benchmark)", "keys of the config for all runs")
    parser.add_argument(
        "--benchmarks",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="config files of which each run takes one, together with --config",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["dmml_ft", "dwpp", "dwopp", "joint"],
        metavar="NAME",
        help="methods (default: dmml_ft dwpp dwopp joint)",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="seeds (default: 0 1 2)")
    parser.add_argument(
        "--vary",
        nargs="+",
        action="append",
        default=[],
        metavar="WORD",
        help="KEY VALUE VALUE ...: runs with each value; given again, every value with every other. "
        "KEY,KEY V,V V,V ...: keys that vary together",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at once, each on a GPU of its own (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands of the runs to be made")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the runs and the table")
