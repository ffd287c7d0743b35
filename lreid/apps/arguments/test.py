"""Test trained models: write their figures as a table and JSON, and ranked images as a page.

lreid test --checkpoint runs/my-run/checkpoints/task-10.pt             # on the benchmark of its run
lreid test --checkpoint runs/my-run                                    # after every task
lreid test --checkpoint zoo:dwopp-synthetic-10                         # a model of the zoo
lreid test --checkpoint task-10.pt --config configs/benchmarks/veri776-10.yaml
lreid test --checkpoint task-10.pt --query my/queries --gallery my/gallery
lreid test --gallery people.gallery --query my/labelled                # a saved gallery as it is
lreid test --checkpoint task-10.pt --csv my/index.csv --adapt-norm features --rerank
lreid test --checkpoint runs/my-run --cross-model EVAL.AP trapezoidal  # config keys
"""

import argparse
from itertools import takewhile
from pathlib import Path

from lreid.apps.arguments.search import ENGINE, ENGINES
from lreid.apps.cli import add_config, option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid test``."""
    models = "checkpoints, zoo:NAME, or run folders (every finished task); not needed for a saved gallery"
    option(parser, "--checkpoint FILE", models, [], nargs="+")
    add_config(parser, "benchmark to test on (default: that of the run)")
    option(parser, "--query DIR", "folder of your query images", type=Path)
    option(parser, "--gallery DIR", "folder of your gallery images, or a gallery of lreid search")
    option(parser, "--pattern P", "pattern of image paths in both folders, such as {pid}/{camid}_{n}.png")
    option(parser, "--csv FILE", "list of your images, with the splits query and gallery", type=Path)
    out = "folder for test.json and ranked.html (default: RUN/test, one subfolder per test set)"
    option(parser, "--out DIR", out, type=Path)
    parser.add_argument("--rerank", action="store_true", help="also score with k-reciprocal re-ranking")
    parser.add_argument("--expand", action="store_true", help="also score with query expansion")
    parser.add_argument("--adapt-norm", choices=("features",), help="also score features standardised per camera")
    parser.add_argument(
        "--cross-model", action="store_true", help="also search every model's gallery with every model's queries"
    )
    parser.add_argument("--growth", action="store_true", help="also test random parts of the gallery, with charts")
    option(parser, "--engine", ENGINE, "torch", choices=ENGINES)
    parser.add_argument("--blur", action="store_true", help="blur the images on the page")


def split_checkpoints(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the models of ``--checkpoint`` and all ``KEY VALUE`` pairs, and pairs that argparse read as models."""
    from lreid.config_keys import is_key  # imported here, because it loads yacs, which --help does not need

    files = list(takewhile(lambda word: not is_key(word), args.checkpoint))
    return files, args.checkpoint[len(files) :] + args.overrides
