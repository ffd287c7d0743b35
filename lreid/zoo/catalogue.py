"""Present cards as text: a table for the terminal, the text of a card, and the page MODEL_ZOO.md."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader
from tabulate import tabulate

from lreid.errors import rounded_up
from lreid.zoo.card import Card
from lreid.zoo.hosted import IMAGENET_TERMS, Published

RECOMMENDED = {"people": 0, "vehicles": 1}  # lreid's most accurate models, which are listed first, in this order
Entry = TypeVar("Entry", Card, Published)
_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
SHARED = ("feature", "licence", "terms")  # facts that all third-party checkpoints of one origin have in common


def table(cards: Sequence[Card]) -> str:
    """Format cards as a table of mAP / Rank-1 in per cent, averaged over galleries."""
    heads = ("name", "network", "seen", "unseen", "MB", "weights")
    rows = [
        (
            card.name,
            f"{card.backbone} {card.height}x{card.width}",
            _mean(card, "seen"),
            _mean(card, "unseen"),
            f"{card.bytes / 1e6:.1f}",
            "to download" if card.url else "here",
        )
        for card in cards
    ]
    sides = ("left", "left", "right", "right", "right")
    return tabulate(rows, heads, colalign=sides, disable_numparse=True)


def published_table(entries: Iterable[Published]) -> str:
    """Format third-party checkpoints as a table."""
    heads = ("name", "trained on", "its authors' figures, per cent")
    rows = [(each.name, each.data, each.figures) for each in entries]
    return tabulate(rows, heads, disable_numparse=True, maxcolwidths=[None, 24, 36])


def _mean(card: Card, kind: str) -> str:
    """Format the means of mAP / Rank-1 over galleries of one kind."""
    of_kind = [figures for figures in card.figures.values() if figures["kind"] == kind]
    if not of_kind:
        return "–"
    return " / ".join(f"{sum(each[key] for each in of_kind) / len(of_kind):.1f}" for key in ("mAP", "rank1"))


def describe(card: Card | Published) -> str:
    """Describe a card as text, with one line per fact."""
    if isinstance(card, Published):
        return "\n".join([card.about, *(f"  {name:14} {value}" for name, value in _published_facts(card).items())])
    facts = [*_facts(card).items(), ("command", card.command), ("SHA-256", card.sha256), ("card", str(card.file))]
    facts += [("weights from", address) for address in (card.url, *card.mirrors) if address]
    figures = [
        (gallery, f"mAP {each['mAP']:.2f}, Rank-1 {each['rank1']:.2f}, Rank-5 {each['rank5']:.2f} ({each['kind']})")
        for gallery, each in card.figures.items()
    ]
    return "\n".join([card.title, *(f"  {name:14} {value}" for name, value in facts + figures)])


def markdown_page(cards: Sequence[Card], entries: Sequence[Published]) -> str:
    """Make the text of MODEL_ZOO.md."""
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
    families = [list(family) for _, family in itertools.groupby(entries, lambda each: each.family)]
    return _PAGES.get_template("catalogue.md").render(
        table=_markdown_table(heads, rows, left=4),
        sections=[_section(card) for card in cards],
        families=[_family(family) for family in families],
    )


def _family(entries: Sequence[Published]) -> dict[str, Any]:
    """Make the section of the page about all third-party checkpoints of one origin."""
    heads = ("name", "network", "figures", "SHA-256")
    rows = [
        (
            f"`{each.name}`",
            f"{_network(each)}, {each.height}x{each.width}",
            "; ".join(part for part in (each.figures, each.remark) if part) or "–",
            f"`{each.sha256[:8]}`{' …' if len(each.sha256) == 64 else ' only'}" if each.sha256 else "–",
        )
        for each in entries
    ]
    facts = {name: value for name, value in _published_facts(entries[0]).items() if name in SHARED}
    return {"entry": entries[0], "facts": facts, "table": _markdown_table(heads, rows, left=4)}


def _published_facts(entry: Published) -> dict[str, str]:
    hashes = {64: entry.sha256, 0: "not published: recorded at the first download"}
    facts = {
        "use": _use(entry.start_only),
        "trained on": entry.data,
        "network": f"{_network(entry)}{' with neck' if entry.neck else ''}, {_input(entry)}",
        "feature": entry.feature,
        "figures": f"{entry.figures} (its authors', not measured here)" if entry.figures else "",
        "licence": entry.licence,
        "terms": "; ".join([entry.terms] * bool(entry.terms) + [IMAGENET_TERMS] * entry.imagenet),
        "remark": entry.remark,
        "source": entry.source,
        "weights from": ", ".join([entry.url, *entry.mirrors]),
        "SHA-256": hashes.get(
            len(entry.sha256), f"begins with {entry.sha256}; the whole hash is recorded at the first download"
        ),
    }
    return {name: value for name, value in facts.items() if value}


def _section(card: Card) -> dict[str, Any]:
    """Make the section of the page about one card."""
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
    return {"card": card, "facts": facts, "table": _markdown_table(heads, rows, left=2)}


def hub_text(card: Card, repository: str) -> str:
    """Write the page about an entry for the repository ``OWNER/NAME`` on Hugging Face's hub."""
    return _PAGES.get_template("hub.md").render(_section(card), repository=repository)


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """Format a Markdown table; the first ``left`` columns are flush left, and the others flush right."""
    return tabulate(rows, heads, tablefmt="pipe", stralign="right", colalign=left * ["left"], disable_numparse=True)


def _facts(card: Card) -> dict[str, str]:
    measured = f"{card.ap} AP, {card.metric}, camera filter {'on' if card.camera_filter else 'off'}"
    return {
        "use": _use(card.start_only),
        "trained with": f"{card.method} on {card.benchmark}, seed {card.seed}, after task {card.task} of {card.tasks}; "
        f"{card.images_trained:,} images seen",
        "trained on": card.trained_on,
        **({"limits": card.limits} if card.limits else {}),
        "network": f"{_network(card)}{' with neck' if card.neck else ''}, {_input(card)}; "
        f"features of {card.dim} numbers; {card.parameters:,} parameters, {card.bytes:,} bytes",
        "measured": measured + (", flipped images added" if card.flip else "") + f", protocol {card.protocol}",
        **({"verification": verification_text(card)} if card.verification else {}),
        "licence": f"{card.licence}; made with lreid {card.version}",
        **({"terms": IMAGENET_TERMS} if card.imagenet else {}),
    }


def verification_text(card: Card) -> str:
    """Format the verification threshold of a card with its error rates; the card must have one."""
    rates = card.verification
    return (
        f"threshold {rounded_up(rates['threshold'])} on cosine similarity "
        f"(FAR {100 * rates['false_accept_rate']:g} % on {rates['impostor_pairs']:,} impostor pairs, "
        f"TAR {100 * rates['true_positive_rate']:.1f} %; {', '.join(rates['galleries'])})"
    )


def _network(entry: Card | Published) -> str:
    return entry.backbone if entry.norm == "batch" else f"{entry.backbone}, {entry.norm}"


def _use(start_only: bool) -> str:
    return "initial weights only" if start_only else "features, search, initial weights"


def _input(entry: Card | Published) -> str:
    normalised = f"RGB mean {_numbers(entry.mean)}, std {_numbers(entry.std)}"
    return f"{entry.height}x{entry.width} pixels, {normalised}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


def filter_entries(entries: Iterable[Entry], subject: str | None, licence: str | None) -> list[Entry]:
    """Return the entries for a subject and a licence, recommended entries first.

    Args:
        subject: ``people`` or ``vehicles``, both without models that are only initial weights. None means all entries.
        licence: ``permissive`` for models under MIT, Apache or BSD whose training images are not limited to research;
            None means all entries.
    """
    matching = [
        each
        for each in entries
        if (subject is None or (not each.start_only and _subject_of(each) == subject))
        and (licence is None or _is_permissive(each))
    ]
    return sorted(matching, key=lambda each: (each.name not in RECOMMENDED, RECOMMENDED.get(each.name, 0)))


def _subject_of(entry: Card | Published) -> str:
    """Whether a model re-identifies people or vehicles, judged by its training data."""
    data = (entry.data if isinstance(entry, Published) else f"{entry.benchmark} {entry.trained_on}").lower()
    if isinstance(entry, Card) and "vehicle" not in entry.benchmark:
        return "people"
    return "vehicles" if any(word in data for word in ("vehicle", "veri", "vehicleid", "cars")) else "people"


def _is_permissive(entry: Card | Published) -> bool:
    restricted = isinstance(entry, Published) and (entry.imagenet or bool(entry.terms))
    return entry.licence.startswith(("MIT", "Apache", "BSD")) and not restricted
