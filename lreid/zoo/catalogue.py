"""Cards for people: a table for the terminal, one card in words, and the page MODEL_ZOO.md."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

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

These models were trained to show and to test the software. Those trained on drawn, that is synthetic, images do not
recognise anybody on photographs.

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
    return "\n".join([INTRO, _markdown_table(heads, rows, left=4), "", *map(_section, cards), OUTRO])


def _section(card: Card) -> str:
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
    told = "\n".join(f"* {name}: {value}" for name, value in facts.items())
    table = _markdown_table(heads, rows, left=2)
    return f"## {card.name}\n\n{card.title}.\n\n{table}\n\n{told}\n\n```\n{card.command}\n```\n"


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
