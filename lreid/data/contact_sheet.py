"""A page with some identities of a data set, to see whether it holds what one thinks."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from PIL import Image

from lreid.data.images import read_image
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

Item = TypeVar("Item")
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
section { display: flex; gap: 4px; align-items: flex-end; margin: 0 0 12px; flex-wrap: wrap; }
section h3 { width: 7rem; margin: 0; font-size: 14px; font-weight: 600; align-self: center; }
figure { margin: 0; } figcaption { font-size: 11px; color: #555; text-align: center; }
img { display: block; height: 96px; border-radius: 2px; } .bad { width: 48px; height: 96px; background: #eee; }
"""


def contact_sheet(data_sets: Sequence[DataSet], *, identities: int = 12, images: int = 12) -> str:
    """An HTML page, with all images in it, of some identities of every split.

    Args:
        data_sets: what to show.
        identities: shown of train and of the test, spread evenly over all of them.
        images: shown of each identity, spread evenly likewise.

    Returns:
        The page; images that cannot be read are grey.
    """
    parts = []
    for data_set in data_sets:
        parts.append(f"<h1>{html.escape(data_set.name)}</h1>")
        splits = {
            "train": [("train", data_set.train)],
            "test": [("query", data_set.query), ("gallery", data_set.gallery)],
        }
        for title, lists in splits.items():
            people: dict[int, list[tuple[str, Record]]] = {}
            for split, records in lists:
                for record in records:
                    people.setdefault(record.pid, []).append((split, record))
            parts.append(f"<h2>{title}: {len(people)} identities</h2>")
            for pid in _spread(sorted(people), identities):
                parts.append(f"<section><h3>{pid} <small>({len(people[pid])})</small></h3>")
                parts += [_figure(split, record) for split, record in _spread(people[pid], images)]
                parts.append("</section>")
    names = html.escape(", ".join(data_set.name for data_set in data_sets))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{names}</title>'
        f"<style>{STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _figure(split: str, record: Record) -> str:
    caption = html.escape(f"{split}, camera {record.camid}")
    title = html.escape(Path(record.path).name, quote=True)
    try:
        image = Image.fromarray(read_image(record.path))
    except InputError:
        return f'<figure title="{title}"><div class="bad"></div><figcaption>{caption}</figcaption></figure>'
    image.thumbnail((192, 192))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    return (
        f'<figure title="{title}"><img alt="{title}" src="data:image/jpeg;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _spread(items: Sequence[Item], number: int) -> list[Item]:
    """At most ``number`` of the items, evenly spaced, the first one among them."""
    step = max(1.0, len(items) / number)
    return [items[int(i * step)] for i in range(min(number, len(items)))]
