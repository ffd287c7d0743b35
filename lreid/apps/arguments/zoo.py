"""List trained models, download their weights, verify their figures, and publish your models.

lreid zoo list --for people --license permissive
lreid zoo show dwopp-synthetic-10
lreid zoo download osnet_x1_0-msmt17    # downloads the weights if needed, and prints the path
lreid zoo verify                        # tests each model and compares the figures with its card
lreid zoo publish runs/my-run my-model --half --out my/zoo
lreid zoo publish runs/my-run my-model --out my/zoo --hub OWNER/NAME    # then hub:OWNER/NAME loads it
lreid zoo page                          # writes MODEL_ZOO.md

Environment variables: LREID_ZOO_CARDS is a folder with more cards, LREID_ZOO_CACHE the folder for downloaded weights,
and LREID_ZOO_MIRROR an address from which lreid tries to download weights first.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid zoo``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what)
        sub.set_defaults(action=name)
        return sub

    sub = command("list", "list all models, including third-party checkpoints")
    sub.add_argument(
        "--for", dest="subject", choices=("people", "vehicles"), help="list only models that re-identify these"
    )
    sub.add_argument(
        "--license",
        "--licence",
        dest="licence",
        choices=("permissive",),
        help="permissive: list only models under MIT, Apache or BSD whose training images are not for research only",
    )
    command("show", "print the card of a model").add_argument("name", metavar="NAME", help="name of the model")
    sub = command("download", "download the weights of a model if needed, and print the path")
    sub.add_argument("name", metavar="NAME", help="name of the model")
    sub = command("verify", "test models and compare the figures with their cards")
    sub.add_argument("name", metavar="NAME", nargs="?", help="name of the model (default: all)")
    sub = command("publish", "make a zoo entry from a finished run")
    sub.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sub.add_argument("name", metavar="NAME", help="name of the entry")
    sub.add_argument("--title", default="", help="title in one line (default: method and benchmark)")
    sub.add_argument("--half", action="store_true", help="store the weights in 16 bits")
    sub.add_argument("--start-only", action="store_true", help="mark the model as initial weights for training only")
    sub.add_argument(
        "--trained-on",
        default="",
        metavar="TEXT",
        help="source of the training images (default: names of the data sets)",
    )
    sub.add_argument("--limits", default="", metavar="TEXT", help="limits of the model, and uses to avoid")
    sub.add_argument("--licence", default="MIT", help="licence of the weights (default: MIT)")
    sub.add_argument("--url", action="append", default=[], help="address of the weights; repeat it for mirrors")
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder of the entry (default: lreid/weights)")
    sub.add_argument("--hub", metavar="OWNER/NAME", help="also upload the entry to the Hugging Face Hub; needs --out")
    sub = command("page", "write MODEL_ZOO.md, the page about all models")
    sub.add_argument(
        "--out", type=Path, default=Path("MODEL_ZOO.md"), metavar="FILE", help="file to write (default: MODEL_ZOO.md)"
    )
