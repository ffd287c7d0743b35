"""The rendered people that lreid includes: a data set in one zip archive, which lreid never unpacks.

``python tools/render people.zip`` renders the archive. An image of the archive has an address::

    rendered:<domain>/<file>

The whole archive (a few megabytes) is in memory, so that threads and forked processes read images without a lock.
"""

import csv
import hashlib
import zipfile
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from lreid.data.datasets import Scheme
from lreid.data.images import decode
from lreid.data.records import SPLITS, DataSet, Record
from lreid.errors import InputError, nearest_name
from lreid.utils.identities import ascending_ranks

PREFIX = "rendered:"
ARCHIVE = Path(__file__).with_name("rendered.zip")
INDEX, IMAGES = "index.csv", "images/"  # members of the archive


def read_rendered(address: str) -> bytes:
    """Return the bytes of the JPEG image with an address of the form ``rendered:…``.

    Raises:
        InputError: no image has this address.
    """
    try:
        return _archive().read(IMAGES + address.removeprefix(PREFIX))
    except KeyError:
        raise InputError(f"{address}: no such image in {ARCHIVE.name}; it holds {', '.join(domains())}") from None


def domains() -> list[str]:
    """List the names of the domains, in the order of the archive."""
    return list(dict.fromkeys(row["domain"] for row in _rows()))


def load_rendered(domain: str) -> DataSet:
    """Load the data set of a domain; :func:`domains` lists all domains.

    Raises:
        InputError: no domain has this name.
    """
    names = domains()
    if domain not in names:
        nearest = nearest_name(domain, names)
        raise InputError(f"{PREFIX}{domain}: unknown; the nearest name is {PREFIX}{nearest} (all: {', '.join(names)})")
    rows = [row for row in _rows() if row["domain"] == domain]
    pids = ascending_ranks(row["pid"] for row in rows)
    splits: dict[str, Any] = {
        split: tuple(
            Record(PREFIX + row["path"].removeprefix(IMAGES), pids[row["pid"]], int(row["camid"]))
            for row in rows
            if row["split"] == split
        )
        for split in SPLITS
    }
    return DataSet(domain, **splits)


@cache
def _archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(BytesIO(ARCHIVE.read_bytes()))


@cache
def _rows() -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(_archive().read(INDEX).decode())))


SCHEME = Scheme(
    lambda domain, sources, split: [load_rendered(domain)],
    lambda address: decode(address, BytesIO(read_rendered(address))),
    content=lambda address: hashlib.sha256(read_rendered(address)).digest(),
)
