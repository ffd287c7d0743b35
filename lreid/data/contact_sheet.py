"""Write a contact sheet: a page with some identities of a data set, to check its images by eye."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Template
from PIL import Image

from lreid.data.images import read_image
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

Item = TypeVar("Item")


def contact_sheet(data_sets: Sequence[DataSet], *, identities: int = 12, images: int = 12) -> str:
    """An HTML page, with all images in it, of some identities of every split.

    Args:
        data_sets: what to show.
        identities: shown of train and of the test, spread evenly over all of them.
        images: shown of each identity, spread evenly likewise.

    Returns:
        The page; images that cannot be read are grey.
    """
    template = Template(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"), autoescape=True)
    shown = [
        {
            "name": data_set.name,
            "splits": [
                _split("train", data_set, ["train"], identities, images),
                _split("test", data_set, ["query", "gallery"], identities, images),
            ],
        }
        for data_set in data_sets
    ]
    return template.render(data_sets=shown)


def _split(name: str, data_set: DataSet, parts: Sequence[str], identities: int, images: int) -> dict[str, Any]:
    names = data_set.names
    people: dict[int, list[tuple[str, Record]]] = {}
    for part in parts:
        for record in getattr(data_set, part):
            people.setdefault(record.pid, []).append((part, record))
    chosen = [
        {
            "name": names.identities.get(pid, pid),
            "count": len(people[pid]),
            "images": [
                {
                    "name": Path(record.path).name,
                    "caption": part
                    + f", camera {names.cameras.get(record.camid, record.camid)}" * data_set.has_cameras,
                    "jpeg": _jpeg(record.path),
                }
                for part, record in _spread(people[pid], images)
            ],
        }
        for pid in _spread(sorted(people), identities)
    ]
    return {"name": name, "count": len(people), "people": chosen}


def _jpeg(path: str) -> str | None:
    """A small copy of an image in base64; None where it cannot be read."""
    try:
        image = Image.fromarray(read_image(path))
    except InputError:
        return None
    image.thumbnail((192, 192))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return base64.b64encode(file.getvalue()).decode()


def _spread(items: Sequence[Item], number: int) -> list[Item]:
    """At most ``number`` of the items, evenly spaced, the first one among them."""
    step = max(1.0, len(items) / number)
    return [items[int(i * step)] for i in range(min(number, len(items)))]
