"""Cards for people: a table for the terminal, one card in words, and the page MODEL_ZOO.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Template
from tabulate import tabulate

from lreid.zoo.cards import Card

_TEMPLATE = Template(
    Path(__file__).with_suffix(".md").read_text(encoding="utf-8"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def table(cards: Sequence[Card]) -> str:
    """The cards as an aligned table, mAP / Rank-1 in per cent, means over galleries."""
    heads = ("name", "trained with", "network", "seen", "unseen", "MB", "weights")
    rows = [
        (
            card.name,
            f"{card.method} on {card.benchmark}",
            f"{card.backbone} {card.height}x{card.width}",
            _mean(card, "seen"),
            _mean(card, "unseen"),
            f"{card.bytes / 1e6:.1f}",
            "to download" if card.url else "here",
        )
        for card in cards
    ]
    sides = ("left", "left", "left", "right", "right", "right")
    return tabulate(rows, heads, colalign=sides, disable_numparse=True)


def _mean(card: Card, kind: str) -> str:
    """Means of mAP / Rank-1 over the galleries of a kind."""
    found = [figures for figures in card.figures.values() if figures["kind"] == kind]
    if not found:
        return "–"
    return " / ".join(f"{sum(each[key] for each in found) / len(found):.1f}" for key in ("mAP", "rank1"))


def describe(card: Card) -> str:
    """A card in words, a line each."""
    facts = [(name, value) for name, value in _facts(card).items()]
    facts += [("command", card.command), ("SHA-256", card.sha256), ("card", str(card.file))]
    facts += [("weights from", address) for address in (card.url, *card.mirrors) if address]
    figures = [
        (gallery, f"mAP {each['mAP']:.2f}, Rank-1 {each['rank1']:.2f}, Rank-5 {each['rank5']:.2f} ({each['kind']})")
        for gallery, each in card.figures.items()
    ]
    return "\n".join([card.title, *(f"  {name:14} {value}" for name, value in facts + figures)])


def markdown_page(cards: Sequence[Card]) -> str:
    """MODEL_ZOO.md."""
    heads = ("name", "method", "benchmark", "network", "seen mAP / Rank-1", "unseen mAP / Rank-1", "MB")
    rows = [
        (
            f"[`{card.name}`](#{card.name})",
            f"`{card.method}`",
            card.benchmark,
            f"{card.backbone}, {card.height}x{card.width}",
            _mean(card, "seen"),
            _mean(card, "unseen"),
            f"{card.bytes / 1e6:.1f}",
        )
        for card in cards
    ]
    return _TEMPLATE.render(table=_markdown_table(heads, rows, left=4), cards=[_section(card) for card in cards])


def _section(card: Card) -> dict[str, Any]:
    """What the page tells of a card."""
    heads = ("gallery", "kind", "queries", "images", "mAP", "Rank-1", "Rank-5", "Rank-10")
    rows = [
        (
            gallery,
            each["kind"],
            str(each["queries"]),
            str(each["images"]),
            *(f"{each[key]:.1f}" for key in ("mAP", "rank1", "rank5", "rank10")),
        )
        for gallery, each in card.figures.items()
    ]
    facts = _facts(card)
    if card.url:
        facts["weights from"] = ", ".join([card.url, *card.mirrors])
    facts["SHA-256"] = f"`{card.sha256}`"
    table = _markdown_table(heads, rows, left=2)
    return {"name": card.name, "title": card.title, "table": table, "facts": facts, "command": card.command}


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """A table whose first ``left`` columns are flush left, the others flush right."""
    return tabulate(rows, heads, tablefmt="pipe", stralign="right", colalign=left * ["left"], disable_numparse=True)


def _facts(card: Card) -> dict[str, str]:
    measured = f"{card.ap} AP, {card.metric}, camera filter {'on' if card.camera_filter else 'off'}"
    normalised = f"RGB mean {_numbers(card.mean)}, std {_numbers(card.std)}"
    return {
        "use": "start of training only" if card.start_only else "features, search, start of training",
        "trained with": f"{card.method} on {card.benchmark}, seed {card.seed}, after task {card.task} of {card.tasks}; "
        f"{card.images_trained:,} images seen",
        "trained on": card.trained_on,
        "network": f"{card.backbone}{' with neck' if card.neck else ''}, {card.height}x{card.width} pixels, "
        f"{normalised}; features of {card.dim} numbers; {card.parameters:,} parameters, {card.bytes:,} bytes",
        "measured": measured + (", flipped images added" if card.flip else "") + f", protocol {card.protocol}",
        "licence": f"{card.licence}; made with lreid {card.version}",
    }


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)
