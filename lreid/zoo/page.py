"""Cards for people: a table for the terminal, one card in words, and the page MODEL_ZOO.md."""

from __future__ import annotations

from collections.abc import Sequence

from lreid.zoo.cards import Card

INTRO = """\
# Model zoo

Trained models by name, wherever a checkpoint is asked for. Those without an address come with lreid and need no
network.

```
python tools/zoo.py list
python tools/test.py --checkpoint zoo:dwopp-synthetic-10
python tools/search.py build my.gallery my/images --checkpoint zoo:dwopp-synthetic-10
python tools/train.py MODEL.WEIGHTS zoo:dwopp-synthetic-10    # start from its backbone
```

```python
import lreid

model = lreid.load_model("dwopp-synthetic-10")
features = model.extract(["a.jpg", "b.jpg"])
```

These models were trained to show and to test the software. Where a card says that its pictures are drawn, do not expect
the model to recognise anybody on photographs.

mAP / Rank-1 in per cent, means over galleries; below, each gallery.
"""

OUTRO = """\
## A zoo of your own

`python tools/zoo.py publish RUN NAME --half --out my/zoo` makes an entry of a finished run: weights as safetensors, and
a card whose figures are those of the weights as they are stored. With `LREID_ZOO_CARDS=my/zoo` it is found by its name,
and from anywhere as `zoo:my/zoo/NAME.json`. `--url` names an address from which weights are downloaded that do not lie
beside their card: broken downloads are taken up again, the SHA-256 is checked, and what was fetched is kept in
`LREID_ZOO_CACHE`. `LREID_ZOO_MIRROR`, an address that begins with http, https or file, is asked first.

`MODEL.WEIGHTS` also takes checkpoints of runs, `.safetensors` files, and state dicts of torchvision and torchreid;
every tensor that is left out or missing is told.

This page is written by `python tools/zoo.py page`, and `python tools/zoo.py verify` measures every model again.
"""


def table(cards: Sequence[Card]) -> str:
    """The cards as an aligned table, mAP / Rank-1 in per cent, means over galleries."""
    rows = [("name", "trained with", "network", "seen", "unseen", "MB", "weights")]
    rows += [
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if place in (3, 4, 5) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def _mean(card: Card, kind: str) -> str:
    """mAP / Rank-1, means over the galleries of a kind."""
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


def page(cards: Sequence[Card]) -> str:
    """MODEL_ZOO.md."""
    head = [
        "| name | method | benchmark | network | seen mAP / Rank-1 | unseen mAP / Rank-1 | MB |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    rows = [
        f"| [`{card.name}`](#{card.name}) | `{card.method}` | {card.benchmark} | "
        f"{card.backbone}, {card.height}x{card.width} | {_mean(card, 'seen')} | {_mean(card, 'unseen')} | "
        f"{card.bytes / 1e6:.1f} |"
        for card in cards
    ]
    sections = [_section(card) for card in cards]
    return "\n".join([INTRO, *head, *rows, "", *sections, OUTRO])


def _section(card: Card) -> str:
    facts = [f"* {name}: {value}" for name, value in _facts(card).items()]
    head = [
        "| gallery | | queries | images | mAP | Rank-1 | Rank-5 | Rank-10 |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [
        f"| {gallery} | {each['kind']} | {each['queries']} | {each['images']} | "
        + " | ".join(f"{each[key]:.1f}" for key in ("mAP", "rank1", "rank5", "rank10"))
        + " |"
        for gallery, each in card.figures.items()
    ]
    own = [f"* weights from: {', '.join([card.url, *card.mirrors])}"] if card.url else []
    return "\n".join(
        [
            f"## {card.name}\n\n{card.title}.\n",
            *head,
            *rows,
            "",
            *facts,
            *own,
            f"* SHA-256: `{card.sha256}`\n\n```\n{card.command}\n```\n",
        ]
    )


def _facts(card: Card) -> dict[str, str]:
    measured = f"{card.ap} AP, {card.metric}, camera filter {'on' if card.camera_filter else 'off'}"
    normalised = f"RGB mean {_numbers(card.mean)}, std {_numbers(card.std)}"
    return {
        "use": "start of training only" if card.start_only else "features, search, start of training",
        "trained with": f"{card.method} on {card.benchmark}, seed {card.seed}, after task {card.task} of {card.tasks}; "
        f"{card.images_trained:,} images looked at",
        "trained on": card.trained_on,
        "network": f"{card.backbone}{' with neck' if card.neck else ''}, {card.height}x{card.width} pixels, "
        f"{normalised}; features of {card.dim} numbers; {card.parameters:,} parameters, {card.bytes:,} bytes",
        "measured": measured + (", mirrored images added" if card.flip else "") + f", protocol {card.protocol}",
        "licence": f"{card.licence}; made with lreid {card.version}",
    }


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)
