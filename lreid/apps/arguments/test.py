"""Test trained models: figures as a table and JSON, ranked images as a page.

lreid test --checkpoint runs/my-run/checkpoints/task-10.pt             # on the benchmark of its run
lreid test --checkpoint runs/my-run                                    # after every task
lreid test --checkpoint zoo:dwopp-synthetic-10                         # a model of the zoo
lreid test --checkpoint task-10.pt --config configs/benchmarks/veri776-10.yaml
lreid test --checkpoint task-10.pt --query my/queries --gallery my/gallery
lreid test --gallery people.gallery --query my/labelled                # what a saved gallery finds
lreid test --checkpoint task-10.pt --csv my/index.csv --adapt-norm features --rerank
lreid test --checkpoint runs/my-run --cross-model EVAL.AP trapezoidal  # any key of the config
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lreid.apps.cli import add_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid test``."""
    parser.add_argument(
        "--checkpoint",
        nargs="+",
        default=[],
        metavar="FILE",
        help="checkpoints, zoo:NAME, or run folders for all their finished tasks; a saved gallery knows its own",
    )
    add_config(parser, "another benchmark than that of the run")
    parser.add_argument("--query", type=Path, metavar="DIR", help="folder of your queries")
    parser.add_argument("--gallery", metavar="DIR", help="folder of your gallery, or one that lreid search has built")
    parser.add_argument("--pattern", metavar="P", help="of paths in both folders, such as {pid}/{camid}_{n}.png")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="your images with the splits query and gallery")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write test.json and ranked.html (default: RUN/test, a subfolder for each test set)",
    )
    parser.add_argument("--rerank", action="store_true", help="also with k-reciprocal re-ranking")
    parser.add_argument("--expand", action="store_true", help="also with query expansion")
    parser.add_argument("--adapt-norm", choices=("features",), help="also with features standardised by camera")
    parser.add_argument(
        "--cross-model", action="store_true", help="also every model's queries in every model's gallery"
    )
    parser.add_argument(
        "--engine",
        choices=("torch", "onnx"),
        default="torch",
        help="onnx: extract features with onnxruntime on the processor (default: torch)",
    )
    parser.add_argument("--blur", action="store_true", help="blur the images of the page")
