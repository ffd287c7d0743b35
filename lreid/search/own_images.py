"""List the images that a gallery is made of or searched with, with what is known of them, and read their pixels."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lreid.data.addresses import is_address
from lreid.data.csv_dataset import read_rows
from lreid.data.images import Images
from lreid.data.listing import LIST, Listed, camera_in, first_few, image_files, list_folder, numbered
from lreid.data.records import Record
from lreid.errors import InputError, OutOfMemory, counted, naming_keys
from lreid.gallery.store import hash_of
from lreid.identities import UNKNOWN, warn_of_spellings
from lreid.models import Embedder
from lreid.reading import escaped

logger = logging.getLogger("lreid")


class OwnImage(NamedTuple):
    """One image and what is known of it.

    Attributes:
        path: of the file.
        identity, camera: names; None if not known.
        time: seconds, -1 if not known.
    """

    path: str
    identity: str | None
    camera: str | None
    time: int = UNKNOWN


def list_images(
    sources: Iterable[Path], split: str, *, identities: bool = True, identity: str | None = None
) -> list[OwnImage]:
    """The images of folders and CSV files, under absolute paths, each once.

    Args:
        sources: folders (see :func:`lreid.data.listing.list_folder`; one with an ``index.csv`` is that file), CSV
            files, or single images. A CSV file may have a column ``time``: whole seconds, from whenever all count.
        split: which images of a CSV file that tells splits; all its domains together.
        identities: False forgets who is on them, for folders that are named after something else.
        identity: who is on all of them.

    Raises:
        InputError: a source cannot be read or holds no image, or two of them name an image differently.
    """
    images: dict[str, OwnImage] = {}
    for source in sources:
        for image in _listed(source, split, named=identities and identity is None):
            path, name = absolute(image.path), escaped(identity) or image.identity
            before = images[path].identity if path in images else None
            if before is not None and name is not None and before != name:
                raise InputError(
                    f"{path}: is called {before} and, by {source}, {name}; name folders that do not overlap"
                )
            if before is None:
                images[path] = OwnImage(path, name, image.camera, _seconds(image, source))
    return list(images.values())


def list_queries(sources: Iterable[Path]) -> list[OwnImage]:
    """The images of folders and CSV files, or single ones, under the paths given; nobody on them is named.

    Raises:
        InputError: a source cannot be read or holds no image.
    """
    listed = chain.from_iterable(_listed(source, "query", named=False) for source in sources)
    return [OwnImage(image.path, None, image.camera) for image in listed]


def who(images: Iterable[OwnImage]) -> str:
    """What was read off names and folders, for people: ``3 identities (anna, ben, carl) by 2 cameras (1, 2)``."""
    identities, cameras = numbered(image.identity for image in images), numbered(image.camera for image in images)
    seen = f" by {_counted('camera', cameras)}" if cameras else ", no cameras known"
    if not identities:
        return f"nobody with a name (folders named after people tell one, or --identity){seen}"
    return _counted("identity", identities) + seen


def absolute(path: str) -> str:
    """Under this name a gallery keeps an image."""
    return path if is_address(path) else os.path.abspath(path)


def number_names(names: Iterable[str | None], known: Mapping[int, str]) -> dict[str, int]:
    """Numbers of names: those they have, and for others a hash, so that all who add the same name agree.

    Args:
        names: None is passed over.
        known: names by number.

    Returns:
        Numbers from 1 to 2^63 - 1, of the names given.
    """
    numbers = {name: number for number, name in known.items()}
    wanted = [name for name in dict.fromkeys(names) if name is not None]
    warn_of_spellings({*wanted, *numbers}, "names")
    return {name: numbers[name] if name in numbers else hash_of(name) for name in wanted}


def read_images(
    images: Sequence[OwnImage],
    identities: Mapping[str, int],
    cameras: Mapping[str, int],
    model: Embedder,
    *,
    skip_bad: bool,
) -> Images:
    """The images as pixels, with the numbers of their identities and cameras; -1 for names without one.

    Raises:
        InputError: an image cannot be read.
    """

    def number(name: str | None, numbers: Mapping[str, int]) -> int:
        return UNKNOWN if name is None else numbers.get(name, UNKNOWN)

    records = [
        Record(image.path, number(image.identity, identities), number(image.camera, cameras)) for image in images
    ]
    return read_records(records, model, skip_bad=skip_bad)


def read_records(records: Sequence[Record], model: Embedder, *, skip_bad: bool) -> Images:
    """Images as pixels in the size that a model takes; with ``skip_bad`` perhaps none at all.

    Raises:
        InputError: an image cannot be read.
    """
    try:
        with naming_keys(skip_bad="when indexing, --skip-bad"):
            return Images(records, height=model.height, width=model.width, cache_gib=1.0, skip_bad=skip_bad)
    except InputError as error:
        if not skip_bad or isinstance(error, OutOfMemory):
            raise
        none = Images([], height=model.height, width=model.width)  # not one can be read
        none.skipped = [record.path for record in records]
        return none


def require_some(images: Images) -> Images:
    """The images, of which a gallery or a threshold needs one at least.

    Raises:
        InputError: there is none.
    """
    if not len(images):
        raise InputError(
            f"none of the {len(images.skipped)} images can be read, the first: {images.skipped[0]}; replace them"
        )
    return images


def paths_of(images: Images) -> list[str]:
    """Names under which a gallery keeps them."""
    return [record.path for record in images.records]


def times_of(images: Images, listed: Iterable[OwnImage]) -> np.ndarray:
    """(n,) int64 times of those that could be read."""
    times = {image.path: image.time for image in listed}
    return np.array([times[record.path] for record in images.records], dtype=np.int64)


def tell_skipped(images: Images) -> None:
    """Warns of images that could not be read."""
    if images.skipped:
        count = counted(len(images.skipped), "image")
        logger.warning("skipped %s that cannot be read, the first: %s", count, images.skipped[0])


def _counted(what: str, names: Collection[str]) -> str:
    return f"{counted(len(names), what)} ({first_few(names)})"


def _listed(source: Path, split: str, *, named: bool) -> list[Listed]:
    """What a source tells, where not ``named`` all but who is on the images, whatever its folders stand for."""
    if (source / LIST).is_file():
        source = source / LIST
    if source.is_dir() and named:
        return list_folder(source)
    if source.is_dir():
        return [Listed(str(file), None, camera_in(str(file.relative_to(source)))) for file in image_files(source)]
    if source.suffix.lower() == ".csv":
        wanted = [row for row in read_rows(source, splits=False, named=False) if row.split in ("", split)]
        if not wanted:
            raise InputError(f"{source}: has no image of the split {split}; add some")
        return [
            Listed(str(source.parent / row.path), (row.pid if named else "") or None, row.camid or None, row.time)
            for row in wanted
        ]
    if not (source.exists() or is_address(str(source))):
        raise InputError(f"{source}: no such folder or file; mend the name")  # no bad image to be skipped
    return [Listed(str(source), None, camera_in(source.name))]


def _seconds(image: Listed, where: Path) -> int:
    if not image.time:
        return UNKNOWN
    if not image.time.isascii() or not image.time.isdecimal() or len(image.time) > 18:
        raise InputError(f"{where}: time of {image.path} is {image.time!r}; write whole seconds, or leave it empty")
    return int(image.time)
