"""List trained models by name, show their cards and find their weights, without importing torch."""

import argparse
from collections.abc import Iterable
from typing import TypeVar

from lreid.errors import InputError
from lreid.utils.files import write_text
from lreid.zoo import PREFIX
from lreid.zoo.card import BUNDLED, Card, cards, find
from lreid.zoo.catalogue import describe, markdown_page, published_table, table
from lreid.zoo.hosted import IMAGENET_TERMS, Published, published

RECOMMENDED = {"people": 0, "vehicles": 1}  # lreid's most accurate models, which are listed first, in this order


def run(args: argparse.Namespace) -> None:
    """Run the chosen command."""
    actions = {"list": _list, "show": _show, "download": _download, "page": _page}
    if args.action in actions:
        actions[args.action](args)
        return
    from lreid.apps import publishing  # loads torch

    {"verify": publishing.verify_cards, "publish": publishing.publish_run}[args.action](args)


def _list(args: argparse.Namespace) -> None:
    ours, others = chosen(cards(), args.subject, args.licence), chosen(published().values(), args.subject, args.licence)
    if ours:
        print(f"{table(ours)}\n\nmAP / Rank-1 in per cent, means over galleries")
        if (best := ours[0]).name in RECOMMENDED:
            print(f"recommended: {PREFIX}{best.name}. {best.title}")
        if args.licence and (unsettled := [each.name for each in ours if each.imagenet]):
            print(f"{', '.join(unsettled)}: {IMAGENET_TERMS}")
    if others:
        print(f"\n{published_table(others)}\n\nthese are third-party checkpoints; lreid zoo show NAME prints more")
    if not ours and not others:
        raise InputError(
            f"--for {args.subject}, --license {args.licence}: no model of the zoo matches; remove one of the options"
        )


Entry = TypeVar("Entry", Card, Published)


def chosen(entries: Iterable[Entry], subject: str | None, licence: str | None) -> list[Entry]:
    """Return the entries for a subject and a licence, recommended entries first.

    Args:
        subject: ``people`` or ``vehicles``, both without models that are only initial weights. None means all entries.
        licence: ``permissive`` for models under MIT, Apache or BSD whose training images are not limited to research;
            None means all entries.
    """
    matching = [
        each
        for each in entries
        if (subject is None or (not each.start_only and subject_of(each) == subject))
        and (licence is None or _is_permissive(each))
    ]
    return sorted(matching, key=lambda each: (each.name not in RECOMMENDED, RECOMMENDED.get(each.name, 0)))


def subject_of(entry: Card | Published) -> str:
    """Return what a model re-identifies, people or vehicles, judged by its training data."""
    data = (entry.data if isinstance(entry, Published) else f"{entry.benchmark} {entry.trained_on}").lower()
    if isinstance(entry, Card) and "vehicle" not in entry.benchmark:
        return "people"
    return "vehicles" if any(word in data for word in ("vehicle", "veri", "vehicleid", "cars")) else "people"


def _is_permissive(entry: Card | Published) -> bool:
    restricted = isinstance(entry, Published) and (entry.imagenet or bool(entry.terms))
    return entry.licence.startswith(("MIT", "Apache", "BSD")) and not restricted


def _show(args: argparse.Namespace) -> None:
    print(describe(find(args.name.removeprefix(PREFIX))))


def _download(args: argparse.Namespace) -> None:
    from lreid.zoo.weights import weights_file

    print(weights_file(find(args.name.removeprefix(PREFIX))))


def _page(args: argparse.Namespace) -> None:
    bundled = [card for card in cards() if card.file.parent == BUNDLED]
    write_text(args.out, markdown_page(bundled, list(published().values())))
    print(args.out)
