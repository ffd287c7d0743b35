"""List images with their labels, for a gallery or for queries, and read their pixels."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from lreid.data.images import Images
from lreid.data.listing import LIST, Listed, Pattern, camera_in, first_few, image_files, list_folder, numbered
from lreid.data.records import Record
from lreid.data.schemes import Sources, is_address
from lreid.errors import InputError, OutOfMemory, counted
from lreid.gallery.images import absolute
from lreid.gallery.store import Names, hash_of
from lreid.utils.identities import UNKNOWN
from lreid.utils.reading import escaped

if TYPE_CHECKING:
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")


class SearchImage(NamedTuple):
    """An image with its labels.

    Attributes:
        identity, camera: names of identity and camera, or None if unknown.
        time: time in seconds, -1 if unknown.
    """

    path: str
    identity: str | None
    camera: str | None
    time: int = UNKNOWN


def list_images(
    sources: Iterable[Path],
    split: str,
    where: Sources = Sources(),  # noqa: B008 (frozen)
    *,
    identities: bool = True,
    identity: str | None = None,
) -> list[SearchImage]:
    """List the images of folders and CSV files, each image once, with absolute paths.

    Args:
        sources: folders (see :func:`lreid.data.listing.list_folder`), CSV files or single images. If a folder contains
            a file ``index.csv``, this file lists the images of the folder. A CSV file may have a column ``time`` with
            whole seconds since a common start.
        split: the split to list, if a CSV file has splits. Images of all domains of this split are listed.
        where: pattern for paths in folders, and root folder of the image paths in CSV files.
        identities: whether to read identities; pass False if folders are not named after people.
        identity: the person whom all images show; if it is given, identities in paths and CSV files are ignored.

    Raises:
        InputError: a source cannot be read or contains no image, or two sources give one image different labels.
    """
    images: dict[str, SearchImage] = {}
    for source in sources:
        for image in _listed(source, split, where, named=identities and identity is None):
            path, name = absolute(image.path), escaped(identity) or image.identity
            before = images[path].identity if path in images else None
            if before is not None and name is not None and before != name:
                raise InputError(
                    f"{path}: is named {before}, but {source} names it {name}; pass folders that do not overlap"
                )
            if before is None:
                images[path] = SearchImage(path, name, image.camera, _seconds(image, source))
    return list(images.values())


def list_queries(sources: Iterable[Path], where: Sources = Sources()) -> list[SearchImage]:  # noqa: B008 (frozen)
    """List single images, or the images of folders and CSV files, with unchanged paths and without identities.

    Raises:
        InputError: a source cannot be read or contains no image.
    """
    listed = chain.from_iterable(_listed(source, "query", where, named=False) for source in sources)
    return [SearchImage(image.path, None, image.camera) for image in listed]


def who(images: Iterable[SearchImage]) -> str:
    """Summarise identities and cameras, as in ``3 identities (anna, ben, carl) by 2 cameras (1, 2)``."""
    identities, cameras = numbered(image.identity for image in images), numbered(image.camera for image in images)
    seen = f" by {_counted('camera', cameras)}" if cameras else ", cameras unknown"
    if not identities:
        return f"no named person (name folders after people, or pass --identity){seen}"
    return _counted("identity", identities) + seen


def read_images(
    images: Sequence[SearchImage], model: Embedder, names: Names, *, skip_bad: bool = False
) -> tuple[list[SearchImage], Images]:
    """Return the images that can be read, and their pixels at the input size of a model.

    Args:
        images: images from :func:`list_images` or :func:`list_queries`.
        names: names in the gallery, see :class:`lreid.gallery.store.About`. The records of the pixels contain the
            numbers that identities and cameras have in the gallery. A name that is not in the gallery has the number
            that it will get there.
        skip_bad: whether to skip images that cannot be read, with a warning, even if no image remains.

    Raises:
        InputError: an image cannot be read.
    """
    numbers = {what: {name: number for number, name in of_kind.items()} for what, of_kind in names.items()}

    def number(what: str, name: str | None) -> int:
        return UNKNOWN if name is None else numbers.get(what, {}).get(name, hash_of(name))

    records = [
        Record(image.path, number("identity", image.identity), number("camera", image.camera)) for image in images
    ]
    try:
        pixels = Images(records, height=model.height, width=model.width, cache_gib=1.0, skip_bad=skip_bad)
    except InputError as error:
        if not skip_bad or isinstance(error, OutOfMemory):
            raise
        pixels = Images([], height=model.height, width=model.width)  # empty, because none of the images can be read
        pixels.skipped = [record.path for record in records]
    if pixels.skipped:
        count = counted(len(pixels.skipped), "image")
        logger.warning("skipped %s that cannot be read; the first is %s", count, pixels.skipped[0])
    by_path = {image.path: image for image in images}
    return [by_path[record.path] for record in pixels.records], pixels


def require_some(pixels: Images) -> None:
    """Check that at least one image can be read, for a gallery or a threshold.

    Raises:
        InputError: none of the images can be read.
    """
    if not len(pixels):
        raise InputError(
            f"none of the {len(pixels.skipped)} images can be read, the first is {pixels.skipped[0]}; replace them"
        )


def columns(images: Iterable[SearchImage]) -> tuple[list[str], list[str | None], list[str | None], list[int]]:
    """Return paths, identities, cameras and times as arguments for :meth:`lreid.gallery.Gallery.add`."""
    images = list(images)
    return (
        [image.path for image in images],
        [image.identity for image in images],
        [image.camera for image in images],
        [image.time for image in images],
    )


def _counted(what: str, names: Collection[str]) -> str:
    return f"{counted(len(names), what)} ({first_few(names)})"


def _listed(source: Path, split: str, where: Sources, *, named: bool) -> list[Listed]:
    """List the images of one source; with ``named=False``, ignore their identities."""
    if (source / LIST).is_file():
        source = source / LIST
    if source.is_dir() and where.pattern:
        listed = list_folder(source, pattern=Pattern(where.pattern))
        return listed if named else [image._replace(identity=None) for image in listed]
    if source.is_dir() and named:
        return list_folder(source)
    if source.is_dir():
        return [Listed(str(file), None, camera_in(str(file.relative_to(source)))) for file in image_files(source)]
    if source.suffix.lower() in (".csv", ".parquet"):
        from lreid.data.tables import read_table

        images = read_table(source, splits=False, named=False, root=Path(where.root))
        wanted = [image for image in images if image.split in ("", split)]
        if not wanted:
            raise InputError(f"{source}: has no image of the split {split}; add some")
        return wanted if named else [image._replace(identity=None) for image in wanted]
    if not (source.exists() or is_address(str(source))):
        # An error even with skip_bad, which only skips unreadable images.
        raise InputError(f"{source}: no such folder or file; correct the name")
    if not where.pattern:
        return [Listed(str(source), None, camera_in(source.name))]
    pattern = Pattern(where.pattern)
    path = PurePath(*source.absolute().parts[-pattern.depth :])
    if (labels := pattern.read(path)) is None:
        raise InputError(f"{source}: the pattern {pattern.text} does not match the paths; correct it, or remove it")
    return [Listed(str(source), None, escaped(labels[1]))]


def _seconds(image: Listed, where: Path) -> int:
    if not image.time:
        return UNKNOWN
    if not image.time.isascii() or not image.time.isdecimal() or len(image.time) > 18:
        raise InputError(
            f"{where}: time of {image.path} is {image.time!r}; write whole seconds, or leave the cell empty"
        )
    return int(image.time)
