r"""Train several methods, benchmarks, seeds and values of keys; write one table and one plot of learning curves.

    lreid sweep --out runs/synthetic-10                     # four methods, three seeds each
    lreid sweep --config configs/benchmarks/synthetic-domains.yaml --out runs/domains
    lreid sweep --methods dwopp dwpp --benchmarks configs/benchmarks/synthetic-*.yaml --out runs/all --jobs 2
    lreid sweep --methods dwopp --seeds 0 1 --out runs/slow TRAIN.LR 5e-4
    lreid sweep --methods dwopp --search random --images 3000000 --out runs/search \
        --vary TRAIN.LR 1e-4..1e-2 --vary METHOD.TEMPERATURE 1 2 4 BENCHMARK.TRAIN "['dev:market1501']"

Every combination is one run. A repeated command skips finished runs. A failed run does not stop the other runs.
With --search, optuna draws one value of each --vary per trial, which trains all seeds: one of several values, or a
number of a range LOW..HIGH (log-uniformly if LOW is above 0).

These commands run the ablations of DwoPP (BMVC 2022); add --config to choose the benchmark:

  Figure 4: (a) the distillation weight, and (b, c) the temperature, in the ranges that the paper states:
    lreid sweep --methods dwopp --vary METHOD.DISTILLATION_WEIGHT 0.1 0.5 1 2 10 --out runs/weight
    lreid sweep --methods dwopp dwpp --vary METHOD.TEMPERATURE 0.1 0.5 1 2 10 --out runs/temperature
  Table 3: separate weights for positive and negative pairs (beta -1 stands for 1 - rho, which is DwPP):
    lreid sweep --methods decoupled --vary METHOD.ALPHA,METHOD.BETA 0,1 0.1,0.9 0.3,0.7 0.5,0.5 1,0 1,-1 \
        --out runs/decoupled METHOD.TEMPERATURE 1.0
  Figure 6: three random orders of the identities:
    lreid sweep --vary BENCHMARK.ORDER_SEED 0 1 2 --seeds 0 --out runs/orders BENCHMARK.ORDER random
"""

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path

from lreid.apps.arguments import add_config, add_imports, checked_config, flag, option, split_pairs
from lreid.errors import InputError, counted, require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid sweep``."""
    add_config(
        parser, "config file for all runs (default: built-in benchmark)", "config keys for all runs, with their values"
    )
    add_imports(parser)
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
    kinds = "draw the values of --vary instead of combining all: random, or tpe, which learns from the mean seen mAP"
    option(parser, "--search KIND", kinds, choices=("random", "tpe"))
    images = "training images of all runs of a search, which ends before the trial that would exceed this number"
    option(parser, "--images N", images, type=int)
    flag(parser, "--dry-run", "only print the commands of the unfinished runs")
    option(parser, "--out DIR", "folder of the runs and the table", type=Path, required=True)


def run(args: argparse.Namespace) -> None:
    """Train the runs and print the table, or only print the commands of the runs."""
    values, pairs = zip(*(split_pairs(words, start=1) for words in (args.methods, args.seeds, *args.vary)), strict=True)
    methods, seeds, *varied = values
    overrides = [*chain(*pairs), *args.overrides]
    _check(args, methods, overrides)
    require(args.jobs >= 1, "--jobs", args.jobs, "1 or more")
    for seed in seeds:
        require(seed.isdecimal(), "--seeds", seed, "a whole number, 0 or more")
    vary = {key: values for key, *values in varied}
    for key, values in vary.items():
        if not values:
            raise InputError(f"--vary {key}: has no values; give them after the key")
    for key, count in Counter(key for keys, *_ in varied for key in keys.split(",")).items():
        if count > 1:
            raise InputError(f"--vary {key}: is given {count} times; give all values of the key in one option")
    _check_search(args, methods, vary)
    from lreid.apps.sweep_runs import plan_runs, sweep  # loads torch
    from lreid.apps.sweep_search import search

    whole = [int(seed) for seed in seeds]
    given = {"files": args.config, "benchmarks": args.benchmarks, "overrides": overrides}
    plan = partial(plan_runs, args.out, methods, whole, **given)
    train = partial(sweep, out=args.out, jobs=args.jobs)
    runs = search(args.search, args.images, vary, plan, train, whole[0]) if args.search else plan(vary=vary)
    if args.dry_run:
        for each in runs:
            if not each.is_finished():
                print(shlex.join(each.command))
        return
    table, failed = train(runs, key=next(iter(vary)) if len(vary) == 1 else "")
    print(table)
    for folder, reason in failed.items():
        print(f"{folder}: {reason}", file=sys.stderr)
    if failed:
        raise InputError(
            f"{len(failed)} of {counted(len(runs), 'run')} failed; fix the errors above, then repeat the command"
        )


def _check_search(args: argparse.Namespace, methods: Sequence[str], vary: Mapping[str, Sequence[str]]) -> None:
    if (args.search is None) != (args.images is None):
        raise InputError("--search and --images: belong together; give both or neither")
    if args.search and (len(methods) > 1 or not vary):
        raise InputError("--search: tunes one method; name it with --methods, and keys with their values with --vary")
    if args.search == "tpe" and args.dry_run:
        raise InputError("--dry-run: TPE draws values by results, so it has no list of commands; use --search random")


def _check(args: argparse.Namespace, methods: Sequence[str], overrides: Sequence[str]) -> None:
    from lreid.utils.files import require_own

    if not args.dry_run:
        names = ("table.md", "table.csv", "table.tex", "curves.png", "sensitivity.png")  # only the first has a mark
        require_own(*(args.out / name for name in names[: 1 if (args.out / names[0]).exists() else None]))
    for benchmark, method in product(args.benchmarks or [None], methods):
        checked_config([*args.config, *filter(None, [benchmark])], ["METHOD.NAME", method, *overrides])
