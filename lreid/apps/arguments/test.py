"""Test trained models: write a table of metrics, a JSON file, and a page of ranked images.

lreid test --checkpoint runs/my-run/checkpoints/task-10.pt             # on the benchmark of the run
lreid test --checkpoint runs/my-run                                    # the models after every task
lreid test --checkpoint zoo:dwopp-synthetic-10                         # a model of the zoo
lreid test --checkpoint task-10.pt --config configs/benchmarks/veri776-10.yaml
lreid test --checkpoint task-10.pt --query my/queries --gallery my/gallery
lreid test --gallery people.gallery --query my/labelled                # a saved gallery
lreid test --checkpoint task-10.pt --csv my/index.csv --adapt-norm features --rerank
lreid test --checkpoint runs/my-run --cross-model EVAL.AP trapezoidal  # config keys
"""

import argparse
from itertools import takewhile
from pathlib import Path

from lreid.apps.cli import add_config, option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid test``."""
    models = "checkpoints, zoo:NAME, or run folders (the models after every task); not needed for a saved gallery"
    option(parser, "--checkpoint FILE", models, [], nargs="+")
    add_config(parser, "config file of the benchmark to test on (default: the benchmark of the run)")
    option(parser, "--query DIR", "folder of your query images", type=Path)
    option(parser, "--gallery DIR", "folder of your gallery images, or a gallery made by lreid search build")
    option(parser, "--pattern P", "pattern of image paths in both folders, such as {pid}/{camid}_{n}.png")
    option(parser, "--csv FILE", "CSV file that lists your images, with the splits query and gallery", type=Path)
    out = "folder for test.json and ranked.html (default: RUN/test, one subfolder per test set)"
    option(parser, "--out DIR", out, type=Path)
    parser.add_argument("--rerank", action="store_true", help="also report metrics with k-reciprocal re-ranking")
    parser.add_argument("--expand", action="store_true", help="also report metrics with query expansion")
    option(parser, "--adapt-norm", "also report metrics of features standardised per camera", choices=("features",))
    parser.add_argument(
        "--cross-model",
        action="store_true",
        help="also report the mAP for each pair of a model that extracts the queries and a model of the gallery",
    )
    parser.add_argument("--blur", action="store_true", help="blur the images on the page")


def split_checkpoints(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the models of ``--checkpoint`` and all ``KEY VALUE`` pairs, even those that argparse took for models."""
    from lreid.config_keys import is_key  # imported here, because it loads yacs, which --help does not need

    files = list(takewhile(lambda word: not is_key(word), args.checkpoint))
    return files, args.checkpoint[len(files) :] + args.overrides
