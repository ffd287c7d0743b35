#!/usr/bin/env python
"""Trains a lifelong re-identification method on a benchmark, task after task.

python tools/train.py                                             # DwoPP on the built-in benchmark
python tools/train.py --config configs/methods/dwpp.yaml          # another method on it
python tools/train.py --config configs/benchmarks/market1501-10.yaml --config configs/methods/dwopp.yaml
python tools/train.py --resume --out runs/my-run                  # goes on where it stopped
python tools/train.py SEED 1 TRAIN.LR 1e-4                        # any key of the config
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps.cli import run_tool
from lreid.apps.options import load_run_config
from lreid.training.run import run_folder_for, train


def main(args: argparse.Namespace) -> None:
    files = args.config
    if args.resume and args.out is not None and not files and (args.out / "config.yaml").exists():
        files = [args.out / "config.yaml"]
    cfg = load_run_config(files, args.overrides)
    train(cfg, args.out or run_folder_for(cfg, resume=args.resume), resume=args.resume)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a benchmark, a method, or both; may be given several times, later files win",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="run folder (default: runs/BENCHMARK-METHOD-seedN, with a number behind it where that is taken)",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint of the run folder")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY VALUE", help="keys of the config, see docs/configuration.md"
    )
    sys.exit(run_tool(parser, main))
