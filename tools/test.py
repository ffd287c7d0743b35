#!/usr/bin/env python
"""Tests checkpoints: figures as a table and JSON, ranked pictures as a page.

python tools/test.py --checkpoint runs/my-run/checkpoints/task-10.pt             # on the benchmark of its run
python tools/test.py --checkpoint runs/my-run                                    # after every task
python tools/test.py --checkpoint zoo:dwopp-synthetic-10                         # a model of the zoo
python tools/test.py --checkpoint task-10.pt --config configs/benchmarks/veri776-10.yaml
python tools/test.py --checkpoint task-10.pt --query my/queries --gallery my/gallery
python tools/test.py --checkpoint task-10.pt --csv my/index.csv --adapt-norm camera --rerank
python tools/test.py --checkpoint runs/my-run --cross-model EVAL.AP trapezoidal  # any key of the config
"""

from __future__ import annotations

import argparse
import re
import sys
from itertools import takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps.cli import run_tool
from lreid.apps.scoring import score_checkpoints
from lreid.errors import InputError
from lreid.report.tables import cross_model_table, score_table

KEY = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)*")


def main(args: argparse.Namespace) -> None:
    if (args.query is None) != (args.gallery is None):
        raise InputError("--query and --gallery go together; give both")
    if args.query and args.csv:
        raise InputError("--csv and --query are two ways to name images; give one of them")
    # The list of checkpoints takes in the KEY VALUE pairs that follow it.
    files = list(takewhile(lambda word: not KEY.fullmatch(word) or Path(word).exists(), args.checkpoint))
    results = score_checkpoints(
        [Path(file) for file in files],
        args.out,
        config=args.config,
        overrides=args.checkpoint[len(files) :] + args.overrides,
        folders=(args.query, args.gallery) if args.query else None,
        csv=args.csv,
        adapt_norm=args.adapt_norm,
        rerank=args.rerank,
        expand=args.expand,
        cross_model=args.cross_model,
        blur=args.blur,
    )
    print(f"\n{score_table(results)}")
    if args.cross_model:
        print(f"\n{cross_model_table(results)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkpoint",
        nargs="+",
        required=True,
        metavar="FILE",
        help="checkpoints, zoo:NAME, or run folders for all their finished tasks",
    )
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="another benchmark than that of the run; may be given several times, later files win",
    )
    parser.add_argument("--query", type=Path, metavar="DIR", help="folder of your queries")
    parser.add_argument("--gallery", type=Path, metavar="DIR", help="folder of your gallery")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="your images with the splits query and gallery")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write test.json and ranked.html (default: RUN/test)"
    )
    parser.add_argument("--rerank", action="store_true", help="also with k-reciprocal re-ranking")
    parser.add_argument("--expand", action="store_true", help="also with query expansion")
    parser.add_argument(
        "--adapt-norm",
        choices=("gallery", "camera"),
        help="also with BatchNorm statistics of the gallery's own images, as a whole or by camera",
    )
    parser.add_argument(
        "--cross-model", action="store_true", help="also every model's queries in every model's gallery"
    )
    parser.add_argument("--blur", action="store_true", help="smear the pictures of the page")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config, see lreid/config.py")
    sys.exit(run_tool(parser, main))
