"""List trained models, download their weights, verify their metrics, and publish your models.

lreid zoo list --for people --license permissive    # --all: all models
lreid zoo show dwopp-synthetic-10
lreid zoo download osnet_x1_0-msmt17    # downloads the weights if needed, and prints the path
lreid zoo verify                        # tests each model and compares the metrics with its card
lreid zoo publish runs/my-run my-model --licence MIT --half --out my/zoo
lreid zoo publish runs/my-run my-model --licence MIT --out my/zoo --hub OWNER/NAME    # load it as hub:OWNER/NAME
lreid zoo page                          # writes MODEL_ZOO.md

Environment variables: LREID_ZOO_CARDS is a folder with additional cards, and LREID_ZOO_CACHE the folder for downloaded
weights. LREID_ZOO_MIRROR is an address from which lreid first tries to download weights.
"""

import argparse
from pathlib import Path
from textwrap import fill

from lreid.apps.arguments import flag, option, subcommand
from lreid.errors import InputError, counted

WIDTH = 100  # maximum number of characters per line of a list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid zoo``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sub = subcommand(commands, _list, "list lreid's models, the most accurate first")
    flag(sub, "--all", "also list models for synthetic images, and third-party checkpoints")
    option(sub, "--for", "list only models for this subject", choices=("people", "vehicles"), dest="subject")
    sub.add_argument(
        "--license",
        "--licence",
        dest="licence",
        choices=("permissive",),
        help="list only models with an MIT, Apache or BSD licence, except those trained on images for research only",
    )
    sub = subcommand(commands, _show, "print the card of a model")
    sub.add_argument("name", metavar="NAME", help="name of the model")
    sub = subcommand(commands, _download, "download the weights of a model if needed, and print the path")
    sub.add_argument("name", metavar="NAME", help="name of the model")
    sub = subcommand(commands, _verify, "test models and compare the metrics with their cards")
    sub.add_argument("name", metavar="NAME", nargs="?", help="name of the model (default: all)")
    sub = subcommand(commands, _publish, "make a zoo entry from a finished run")
    sub.add_argument("run", type=Path, metavar="RUN", help="run folder")
    sub.add_argument("name", metavar="NAME", help="name of the entry")
    option(sub, "--title", "one-line title of the model (default: method and benchmark)", "")
    flag(sub, "--half", "store the weights as 16-bit floats")
    flag(sub, "--start-only", "mark the model as initial weights for training")
    option(sub, "--trained-on TEXT", "source of the training images (default: names of the data sets)", "")
    option(sub, "--limits TEXT", "limits of the model, and uses to avoid", "")
    licence = "licence of the weights, such as MIT; research-only if the training images are for research"
    option(sub, "--licence", licence, required=True)
    option(sub, "--url", "address from which lreid downloads the weights; repeat the option for mirrors", [])
    option(sub, "--out DIR", "folder of the entry (default: lreid/weights)", type=Path)
    option(sub, "--hub OWNER/NAME", "also upload the entry to the Hugging Face Hub; needs --out")
    sub = subcommand(commands, _page, "write MODEL_ZOO.md, the page about all models")
    option(sub, "--out FILE", "file to write", Path("MODEL_ZOO.md"))


def run(args: argparse.Namespace) -> None:
    """Run the chosen command."""
    args.run_command(args)


def _list(args: argparse.Namespace) -> None:
    from lreid.zoo.card import BUNDLED, cards
    from lreid.zoo.catalogue import RECOMMENDED, filter_entries, published_table, table
    from lreid.zoo.hosted import IMAGENET_TERMS, published
    from lreid.zoo.names import PREFIX

    ours = filter_entries(cards(), args.subject, args.licence)
    others = filter_entries(published().values(), args.subject, args.licence)
    # lreid's own models that started from ImageNet weights are those for photographs.
    shown = [each for each in ours if args.all or each.imagenet or not each.file.is_relative_to(BUNDLED)]
    if shown:
        print(f"{table(shown)}\n\nmAP / Rank-1 in per cent, means over galleries; lreid zoo show NAME prints more")
        if (best := shown[0]).name in RECOMMENDED:
            print(fill(f"recommended: {PREFIX}{best.name}. {best.title}", WIDTH))
        if args.licence and (unsettled := [each.name for each in shown if each.imagenet]):
            print(fill(f"{', '.join(unsettled)}: {IMAGENET_TERMS}", WIDTH))
    if others and args.all:
        print(f"\n{published_table(others)}\n\nthese are third-party checkpoints")
    elif left := [*others, *(each for each in ours if each not in shown)]:
        print(f"{counted(len(left), 'further model')}, of third parties or for synthetic images: lreid zoo list --all")
    if not ours and not others:
        raise InputError(f"--for {args.subject}, --license {args.licence}: no model matches; remove one option")


def _show(args: argparse.Namespace) -> None:
    from lreid.zoo.card import find
    from lreid.zoo.catalogue import describe

    print(describe(find(args.name)))


def _download(args: argparse.Namespace) -> None:
    from lreid.zoo.card import find
    from lreid.zoo.weights import weights_file

    print(weights_file(find(args.name)))


def _verify(args: argparse.Namespace) -> None:
    from lreid.apps import publishing  # loads torch
    from lreid.zoo.card import Card, cards, find
    from lreid.zoo.names import PREFIX

    chosen = [find(args.name)] if args.name else cards()
    faults = []
    for card in chosen:
        if not isinstance(card, Card):
            raise InputError(f"{PREFIX}{card.name}: is a third-party model without figures measured by lreid")
        try:
            figures, wrong = publishing.verify(card)
        except publishing.ImagesElsewhere as error:
            if args.name:
                raise
            print(f"not measured: {error}", flush=True)
            continue
        for gallery, each in figures.items():
            print(f"{card.name:28} {gallery:12} mAP {each['mAP']:.2f}  Rank-1 {each['rank1']:.2f}", flush=True)
        faults += [f"{card.name}: {fault}" for fault in wrong]
    if faults:
        raise InputError(f"{'; '.join(faults)}; publish the model again, or find out what has changed")
    print("all figures equal those on the cards")


def _publish(args: argparse.Namespace) -> None:
    from lreid.utils.files import require_writable

    if args.hub and not args.out:
        raise InputError("--hub: needs --out DIR, a folder for a copy of the uploaded entry")
    if args.out:
        require_writable(args.out / f"{args.name}.json")
    from lreid.apps.publishing import publish  # loads torch
    from lreid.zoo.card import BUNDLED
    from lreid.zoo.catalogue import describe
    from lreid.zoo.hub import hub_of, upload

    hub = hub_of(args.hub) if args.hub else None  # here, so that a wrong name or token is reported before the work
    options = {key: getattr(args, key) for key in ("licence", "title", "start_only", "trained_on", "limits", "half")}
    card = publish(args.run, args.name, **options, urls=args.url, folder=args.out or BUNDLED)
    print(describe(card))
    if args.hub:
        print(f"uploaded: {upload(card, args.hub, hub)}")


def _page(args: argparse.Namespace) -> None:
    from lreid.utils.files import require_own, write_text
    from lreid.zoo.card import BUNDLED, cards
    from lreid.zoo.catalogue import markdown_page
    from lreid.zoo.hosted import published

    require_own(args.out)
    bundled = [card for card in cards() if card.file.is_relative_to(BUNDLED)]
    write_text(args.out, markdown_page(bundled, list(published().values())))
    print(args.out)
