#!/usr/bin/env python
"""Trained models by name: what there is, where it lies, whether its figures are true, and how to add one.

python tools/zoo.py list
python tools/zoo.py show dwopp-synthetic-10
python tools/zoo.py fetch dwopp-synthetic-10      # downloads the weights where they are not here, says where they are
python tools/zoo.py verify                        # evaluates each model on its benchmark, compares with its card
python tools/zoo.py publish runs/my-run my-model --half --out my/zoo
python tools/zoo.py page                          # writes MODEL_ZOO.md

lreid/zoo/__init__.py tells of LREID_ZOO_CARDS, LREID_ZOO_CACHE and LREID_ZOO_MIRROR.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from lreid import zoo
from lreid.apps import publish as publishing
from lreid.apps.cli import run_tool
from lreid.errors import InputError
from lreid.files import write_text
from lreid.zoo.cards import BUNDLED
from lreid.zoo.catalogue import describe, markdown_page, table


def found(name: str) -> zoo.Card:
    return zoo.find(name.removeprefix(zoo.PREFIX))


def list_(args: argparse.Namespace) -> None:
    print(f"{table(zoo.cards())}\n\nmAP / Rank-1 in per cent, means over galleries; show NAME tells more")


def show(args: argparse.Namespace) -> None:
    print(describe(found(args.name)))


def fetch(args: argparse.Namespace) -> None:
    print(zoo.weights_file(found(args.name)))


def verify(args: argparse.Namespace) -> None:
    faults, tests = [], publishing.TestSets()
    for card in [found(args.name)] if args.name else zoo.cards():
        figures, wrong = tests.verify(card)
        for gallery, each in figures.items():
            print(f"{card.name:28} {gallery:12} mAP {each['mAP']:.2f}  Rank-1 {each['rank1']:.2f}", flush=True)
        faults += [f"{card.name}: {fault}" for fault in wrong]
    if faults:
        raise InputError(f"{'; '.join(faults)}; publish again, or look for what has changed")
    print("as on the cards")


def publish(args: argparse.Namespace) -> None:
    card = publishing.publish(
        args.run,
        args.name,
        title=args.title,
        half=args.half,
        start_only=args.start_only,
        licence=args.licence,
        urls=args.url,
        folder=args.out,
    )
    print(describe(card))


def page(args: argparse.Namespace) -> None:
    write_text(args.out, markdown_page([card for card in zoo.cards() if card.file.parent == BUNDLED]))
    print(args.out)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(action: Callable[[argparse.Namespace], None], what: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(action.__name__.rstrip("_"), help=what)
        sub.set_defaults(action=action)
        return sub

    command(list_, "all models")
    command(show, "one card").add_argument("name", metavar="NAME")
    command(fetch, "download weights and say where they are").add_argument("name", metavar="NAME")
    sub = command(verify, "evaluate models and compare with their cards")
    sub.add_argument("name", metavar="NAME", nargs="?", help="default: all")
    sub = command(publish, "make an entry of a finished run")
    sub.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sub.add_argument("name", metavar="NAME")
    sub.add_argument("--title", default="", help="one line for people (default: method and benchmark)")
    sub.add_argument("--half", action="store_true", help="store weights in 16 bits")
    sub.add_argument("--start-only", action="store_true", help="a network to start training from")
    sub.add_argument("--licence", default="MIT", help="of the weights (default: MIT)")
    sub.add_argument("--url", action="append", default=[], help="address of the weights; more are mirrors")
    sub.add_argument("--out", type=Path, default=BUNDLED, metavar="DIR", help="default: lreid/weights")
    sub = command(page, "write MODEL_ZOO.md")
    sub.add_argument("--out", type=Path, default=REPOSITORY / "MODEL_ZOO.md", metavar="FILE")
    return top


if __name__ == "__main__":
    sys.exit(run_tool(parser(), lambda args: args.action(args)))
