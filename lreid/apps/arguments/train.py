"""Train a lifelong re-identification method on a benchmark, task after task.

lreid train                                             # DwoPP on the built-in benchmark
lreid train --config configs/methods/dwpp.yaml          # another method on it
lreid train --config configs/benchmarks/market1501-10.yaml --config configs/methods/dwopp.yaml
lreid train --resume --out runs/my-run                  # goes on where it stopped
lreid train SEED 1 TRAIN.LR 1e-4                        # any key of the config, see docs/configuration.md
lreid train --options dwopp                             # the keys that are options of a method
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lreid.apps.cli import add_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid train``."""
    add_config(parser, "a benchmark, a method, or both")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="run folder (default: runs/BENCHMARK-METHOD-seedN, with a number behind it where that is taken)",
    )
    parser.add_argument("--options", metavar="METHOD", help="print the options of a method and train nothing")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint of the run folder")
