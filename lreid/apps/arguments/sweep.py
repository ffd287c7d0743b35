"""Train several methods, benchmarks, seeds and values of keys; write one table and one plot of learning curves.

    lreid sweep --out runs/synthetic-10                     # four methods, three seeds each
    lreid sweep --config configs/benchmarks/synthetic-domains.yaml --out runs/domains
    lreid sweep --methods dwopp dwpp --benchmarks configs/benchmarks/synthetic-*.yaml --out runs/all --jobs 2
    lreid sweep --methods dwopp --seeds 0 1 --out runs/slow TRAIN.LR 5e-4

Every combination is one run. A repeated command skips finished runs. A failed run does not stop the other runs.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from lreid.apps.cli import add_config, option

EPILOG = """These commands run the ablations of DwoPP (BMVC 2022); add --config to choose the benchmark:

  Figure 4: (a) the distillation weight, and (b, c) the temperature, in the ranges that the paper states:
    lreid sweep --methods dwopp --vary METHOD.DISTILLATION_WEIGHT 0.1 0.5 1 2 10 --out runs/weight
    lreid sweep --methods dwopp dwpp --vary METHOD.TEMPERATURE 0.1 0.5 1 2 10 --out runs/temperature
  Table 3: separate weights for positive and negative pairs (beta -1 stands for 1 - rho, which is DwPP):
    lreid sweep --methods decoupled --vary METHOD.ALPHA,METHOD.BETA 0,1 0.1,0.9 0.3,0.7 0.5,0.5 1,0 1,-1 \\
        --out runs/decoupled METHOD.TEMPERATURE 1.0
  Figure 6: three random orders of the identities:
    lreid sweep --vary BENCHMARK.ORDER_SEED 0 1 2 --seeds 0 --out runs/orders BENCHMARK.ORDER random
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid sweep``."""
    parser.epilog = EPILOG
    add_config(
        parser, "config file for all runs (default: built-in benchmark)", "config keys for all runs, with their values"
    )
    files = "config files of benchmarks; each run uses one of these files and the files of --config"
    option(parser, "--benchmarks FILE", files, [], nargs="+", type=Path)
    methods = ["dmml_ft", "dwpp", "dwopp", "joint"]
    option(parser, "--methods NAME", f"methods to train (default: {' '.join(methods)})", methods, nargs="+")
    option(parser, "--seeds N", "seeds of the runs (default: 0 1 2)", ["0", "1", "2"], nargs="+")
    values = (
        "KEY VALUE VALUE ...: train one run per value of this key; repeat the option to combine several keys. "
        "KEY,KEY V,V V,V ... changes several keys together"
    )
    option(parser, "--vary WORD", values, [], nargs="+", action="append")
    option(parser, "--jobs N", "number of simultaneous runs, each on its own GPU", 1)
    parser.add_argument("--dry-run", action="store_true", help="only print the commands of the unfinished runs")
    option(parser, "--out DIR", "folder of the runs and the table", type=Path, required=True)


def without_pairs(options: Iterable[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Separate the values of options that take several values from ``KEY VALUE`` pairs after them."""
    from lreid.config_keys import is_key  # imported here, because it loads yacs, which --help does not need

    without: list[list[str]] = []
    pairs: list[str] = []
    for words in options:
        end = next((place for place, word in enumerate(words) if place and is_key(word)), len(words))
        without.append([*words[:end]])
        pairs += words[end:]
    return without, pairs
