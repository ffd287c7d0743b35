"""List trained models by name, find their weights, check their figures, and add models.

lreid zoo list --for people --license permissive
lreid zoo show dwopp-synthetic-10
lreid zoo download osnet_x1_0-msmt17    # gets the weights where they are not here, says where they are
lreid zoo verify                        # evaluates each model on its benchmark, compares with its card
lreid zoo publish runs/my-run my-model --half --out my/zoo
lreid zoo publish runs/my-run my-model --out my/zoo --hub OWNER/NAME    # then hub:OWNER/NAME loads it
lreid zoo page                          # writes MODEL_ZOO.md

lreid/zoo/__init__.py explains LREID_ZOO_CARDS, LREID_ZOO_CACHE and LREID_ZOO_MIRROR.
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

    sub = command("list", "all models, and checkpoints that others host")
    sub.add_argument("--for", dest="subject", choices=("people", "vehicles"), help="models that re-identify these")
    sub.add_argument(
        "--license",
        "--licence",
        dest="licence",
        choices=("permissive",),
        help="permissive: MIT, Apache or BSD, and trained on images that are not for research only",
    )
    command("show", "one card").add_argument("name", metavar="NAME", help="of a model")
    sub = command("download", "get weights that are not here yet, and say where they are")
    sub.add_argument("name", metavar="NAME", help="of a model")
    sub = command("verify", "evaluate models and compare with their cards")
    sub.add_argument("name", metavar="NAME", nargs="?", help="of a model (default: all)")
    sub = command("publish", "make an entry of a finished run")
    sub.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sub.add_argument("name", metavar="NAME", help="of the entry")
    sub.add_argument("--title", default="", help="one line for people (default: method and benchmark)")
    sub.add_argument("--half", action="store_true", help="store weights in 16 bits")
    sub.add_argument("--start-only", action="store_true", help="a network to start training from")
    sub.add_argument("--trained-on", default="", metavar="TEXT", help="source of the images (default: their names)")
    sub.add_argument("--limits", default="", metavar="TEXT", help="what it does not know and must not be used for")
    sub.add_argument("--licence", default="MIT", help="of the weights (default: MIT)")
    sub.add_argument("--url", action="append", default=[], help="address of the weights; more are mirrors")
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder of the entry (default: lreid/weights)")
    sub.add_argument("--hub", metavar="OWNER/NAME", help="also upload the entry to Hugging Face's hub; needs --out")
    sub = command("page", "write MODEL_ZOO.md")
    sub.add_argument(
        "--out", type=Path, default=Path("MODEL_ZOO.md"), metavar="FILE", help="the page (default: MODEL_ZOO.md)"
    )
