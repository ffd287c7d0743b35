"""List trained models, download their weights, verify their metrics, and publish your models.

lreid zoo list --for people --license permissive
lreid zoo show dwopp-synthetic-10
lreid zoo download osnet_x1_0-msmt17    # downloads the weights if needed, and prints the path
lreid zoo verify                        # tests each model and compares the metrics with its card
lreid zoo publish runs/my-run my-model --half --out my/zoo
lreid zoo publish runs/my-run my-model --out my/zoo --hub OWNER/NAME    # load it as hub:OWNER/NAME
lreid zoo page                          # writes MODEL_ZOO.md

Environment variables: LREID_ZOO_CARDS is a folder with additional cards, and LREID_ZOO_CACHE the folder for downloaded
weights. LREID_ZOO_MIRROR is an address from which lreid first tries to download weights.
"""

import argparse
from pathlib import Path

from lreid.apps.cli import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid zoo``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what)
        sub.set_defaults(action=name)
        return sub

    sub = command("list", "list all models, including third-party checkpoints")
    option(sub, "--for", "list only models for this subject", choices=("people", "vehicles"), dest="subject")
    sub.add_argument(
        "--license",
        "--licence",
        dest="licence",
        choices=("permissive",),
        help="list only models with an MIT, Apache or BSD licence, except those trained on images for research only",
    )
    command("show", "print the card of a model").add_argument("name", metavar="NAME", help="name of the model")
    sub = command("download", "download the weights of a model if needed, and print the path")
    sub.add_argument("name", metavar="NAME", help="name of the model")
    sub = command("verify", "test models and compare the metrics with their cards")
    sub.add_argument("name", metavar="NAME", nargs="?", help="name of the model (default: all)")
    sub = command("publish", "make a zoo entry from a finished run")
    sub.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sub.add_argument("name", metavar="NAME", help="name of the entry")
    option(sub, "--title", "one-line title of the model (default: method and benchmark)", "")
    sub.add_argument("--half", action="store_true", help="store the weights as 16-bit floats")
    sub.add_argument("--start-only", action="store_true", help="mark the model as initial weights for training")
    option(sub, "--trained-on TEXT", "source of the training images (default: names of the data sets)", "")
    option(sub, "--limits TEXT", "limits of the model, and uses to avoid", "")
    option(sub, "--licence", "licence of the weights (default: the licence that the training images allow)", "")
    option(sub, "--url", "address from which lreid downloads the weights; repeat the option for mirrors", [])
    option(sub, "--out DIR", "folder of the entry (default: lreid/weights)", type=Path)
    option(sub, "--hub OWNER/NAME", "also upload the entry to the Hugging Face Hub; needs --out")
    sub = command("page", "write MODEL_ZOO.md, the page about all models")
    option(sub, "--out FILE", "file to write", Path("MODEL_ZOO.md"))
