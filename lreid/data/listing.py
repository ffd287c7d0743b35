"""List a user's images: a folder, two folders, or a CSV file, with the labels that these contain."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tabulate import tabulate

from lreid.data.layout import SUFFIXES, visible_images, warn_of_others
from lreid.data.records import Names, QueryGallery, Record
from lreid.errors import InputError
from lreid.identities import DISTRACTOR, JUNK, ascending_ranks, is_junk, warn_of_spellings
from lreid.reading import escaped

if TYPE_CHECKING:
    from lreid.data.pattern import Pattern

# Of names without their suffix: 0002_c1s1_000451_03, and 0001_c001_00016450_0 of VeRi.
MARKET_NAME = re.compile(r"(?P<identity>-1|\d+)_c(?P<camera>\d+)(?:s\d+)?(?:_\w+)?")
# A whole field of a path: cam1_0.jpg, camera 2/0.jpg, 0002_c3s1.jpg; not c0ffee.jpg.
CAMERA = re.compile(r"(?:^|[^a-z0-9])c(?:am(?:era)?)?[-_ ]?(\d+)(?=$|[^a-z0-9]|s\d+(?![a-z0-9]))", re.IGNORECASE)
SPLIT_FOLDERS = {"train", "test", "val", "query", "gallery"}
RUN_FILES = {"config.yaml", "results.json"}  # of a training run's folder
LIST = "index.csv"  # in a folder, it replaces the names
NO_CAMERA = -1
PREVIEWED = 10  # names
SHOWN = 3  # names, where all would be too many


class Listed(NamedTuple):
    """An image with its labels.

    Attributes:
        path: path of the file.
        identity: its name; None if it is not known or if the image is a distractor.
        camera: its name; None if it is not known.
        time: when it was taken, as a CSV file has it; empty if it is not known.
    """

    path: str
    identity: str | None
    camera: str | None
    time: str = ""


def list_folder(folder: Path, *, by_name: bool | None = None, pattern: Pattern | None = None) -> list[Listed]:
    """All images in a folder and the folders below, in ascending order of their paths.

    * Where every file is named as in Market-1501 (``0002_c1….jpg``), the name gives identity and camera; junk (-1) is
      left out and a distractor (0) has no identity.
    * Else the first folder below, or the second where the first are cameras (``cam1/anna/….jpg``), is the identity; an
      image outside such folders has none. The rest of the path gives the camera: ``anna/cam1/….jpg``,
      ``anna/0001_c2.jpg``.

    Args:
        folder: where to look. Hidden files and folders are passed over.
        by_name: whether file names give the labels; None decides by the names.
        pattern: pattern that gives the labels instead, see :func:`listed_by_pattern`.

    Raises:
        InputError: there is no such folder, no image in it, its folders are splits, or see :func:`named_as_market`.
    """
    files = image_files(folder)
    if pattern is not None:
        return listed_by_pattern(folder, files, pattern)
    if by_name is None:
        by_name = named_as_market(files)
    return listed_by_name(files) if by_name else listed_by_folder(folder, files)


def first_few(names: Collection[str]) -> str:
    """Some of many names, for people: ``anna, ben, carl …``."""
    return ", ".join([*names][:SHOWN]) + " …" * (len(names) > SHOWN)


def camera_in(path: str) -> str | None:
    """The camera in a path: ``2`` of ``anna/cam2/07.jpg``, ``0002_c2s1.jpg`` and ``camera 02.jpg``."""
    match = CAMERA.search(path)
    return str(int(match[1])) if match else None


def listed_by_name(files: Iterable[Path]) -> list[Listed]:
    """Images that are all named as in Market-1501, see :func:`list_folder`."""
    listed = []
    for file in files:
        match = MARKET_NAME.fullmatch(file.stem)
        if match and (number := int(match["identity"])) != JUNK:
            identity = None if number == DISTRACTOR else str(number)
            listed.append(Listed(str(file), identity, str(int(match["camera"]))))
    return listed


def listed_by_pattern(folder: Path, files: Iterable[Path], pattern: Pattern) -> list[Listed]:
    """Images of a folder whose paths below it a pattern reads; junk (-1) is left out.

    Raises:
        InputError: a path does not fit; the first one is named.
    """
    listed, others = [], []
    for file in files:
        if (labels := pattern.read(file.relative_to(folder))) is None:
            others.append(file)
        elif labels[0] is None or not is_junk(labels[0]):
            listed.append(Listed(str(file), escaped(labels[0]), escaped(labels[1])))
    if others:
        count = f"{len(others)} of {len(listed) + len(others)} images"
        raise InputError(
            f"{others[0]}: the pattern {pattern.text} does not fit {count}, this one first; correct it (it is matched "
            f"with the path below {folder}), or move these images away"
        )
    return listed


def preview(folder: Path, pattern: Pattern) -> str:
    """Preview of a pattern: its reading of some images, evenly spread over a folder, one line each."""
    files = image_files(folder)
    number = min(PREVIEWED, len(files))
    paths = [files[index * len(files) // number].relative_to(folder) for index in range(number)]
    rows = [(path.as_posix(), *(pattern.read(path) or ("does not fit", ""))) for path in paths]
    return f"{folder}: {pattern.text}\n" + tabulate(rows, ("image", "identity", "camera"), disable_numparse=True)


def listed_by_folder(folder: Path, files: Sequence[Path]) -> list[Listed]:
    """Images of a folder that are not, see :func:`list_folder`.

    Raises:
        InputError: its folders are splits.
    """
    inside = [file.relative_to(folder).parts for file in files]
    tops = {parts[0] for parts in inside if len(parts) > 1}
    if tops and tops <= SPLIT_FOLDERS:
        classes = f"; of classes to learn: --data folder:{folder}" if "train" in tops else ""
        raise InputError(
            f"{folder}: {', '.join(sorted(tops))} are no identities; name one of them, such as {folder / max(tops)}, "
            f"or write {LIST} with the columns path,pid,split{classes}"
        )
    depth = int(bool(tops) and all(CAMERA.fullmatch(top) for top in tops))  # 1: cam1/anna/0001.jpg
    listed = []
    for file, (*above, name) in zip(files, inside, strict=True):
        identity = escaped(above[depth]) if len(above) > depth else None
        camera = camera_in("/".join([*above[:depth], *above[depth + 1 :], name]))
        listed.append(Listed(str(file), identity, camera))
    return listed


def image_files(folder: Path) -> list[Path]:
    """The image files in a folder and below, by their suffix, sorted; links to folders are followed.

    Folders of training runs, whose plots show nobody, are passed over.

    Raises:
        InputError: there is no such folder, no image in it, or one below cannot be read.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name one with images in it")
    others: Counter[str] = Counter()
    try:
        images = _images_below(folder, frozenset(), others)
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({error.strerror}); fix its permissions or move it away"
        ) from None
    warn_of_others(folder, others)
    if not images:
        raise InputError(f"{folder}: holds no images ({' '.join(SUFFIXES)}), neither itself nor the folders in it")
    return sorted(images)


def _images_below(folder: Path, above: frozenset[str], others: Counter[str]) -> list[Path]:
    """The image files below a folder, see :func:`image_files`."""
    real = os.path.realpath(folder)
    if real in above:
        return []
    with os.scandir(folder) as entries:
        names = {each.name: each.is_dir() for each in entries}
    if names.keys() >= RUN_FILES:
        return []
    inner = [name for name, is_folder in names.items() if is_folder and not name.startswith(".")]
    images = visible_images(folder, others)
    for name in inner:
        images += _images_below(folder / name, above | {real}, others)
    return images


def named_as_market(files: Sequence[Path]) -> bool:
    """Whether all names give identity and camera as in Market-1501.

    Raises:
        InputError: most do, but not all: a stray file would turn the labels of all others into something else.
    """
    others = [file for file in files if not MARKET_NAME.fullmatch(file.stem)]
    alike = len(files) - len(others)
    if others and alike > len(others):
        raise InputError(f"{others[0]}: is not named like the other {alike} images (0002_c1….jpg); rename or remove it")
    return not others


def list_csv(file: Path, split: str, root: Path | None = None) -> dict[str, list[Listed]]:
    """The images of one split of a CSV file, by domain (see :mod:`lreid.data.csv_dataset`).

    Raises:
        InputError: the file cannot be read, is faulty, or has no such images.
    """
    from lreid.data.csv_dataset import read_rows

    domains: dict[str, list[Listed]] = {}
    for row in read_rows(file, root=root):
        if row.split == split:
            image = Listed(str(file.parent / row.path), row.pid, row.camid or None, row.time)
            domains.setdefault(row.domain, []).append(image)
    if not domains:
        raise InputError(f"{file}: has no image of the split {split}; add some")
    return domains


def folders_test(query: Path, gallery: Path, pattern: Pattern | None = None) -> QueryGallery:
    """Queries in one folder, the gallery in another; both are labelled in the same way, see :func:`list_folder`.

    Raises:
        InputError: a folder without images, see :func:`named_as_market`, or see :func:`own_test`.
    """
    by_name = pattern is None and named_as_market([*image_files(query), *image_files(gallery)])
    queries, images = (list_folder(folder, by_name=by_name, pattern=pattern) for folder in (query, gallery))
    return own_test(escaped(gallery.resolve().name), queries, images)


def csv_tests(file: Path, root: Path | None = None) -> list[QueryGallery]:
    """One test set for every domain of a CSV file with the splits ``query`` and ``gallery``.

    Raises:
        InputError: the file cannot be read, is faulty, or a domain lacks one of the two.
    """
    queries, galleries = list_csv(file, "query", root), list_csv(file, "gallery", root)
    if lacking := sorted(queries.keys() ^ galleries.keys()):
        split = "gallery" if lacking[0] in queries else "query"
        raise InputError(f"{file}: domain {lacking[0]} has no image of the split {split}; add some")
    return [own_test(domain, queries[domain], galleries[domain]) for domain in queries]


def own_test(name: str, query: Sequence[Listed], gallery: Sequence[Listed]) -> QueryGallery:
    """A test set of listed images; identities and cameras are numbered from 1, both by ascending name.

    It has cameras where that of every image is known; else they are -1 throughout. A query may be a gallery image, too:
    ``in_gallery`` counts such queries. An image without identity that is in both lists is a distractor and no query.

    Raises:
        InputError: nothing is listed, a query has no identity, or it is in the gallery under another one.
    """
    for split, images in (("query", query), ("gallery", gallery)):
        if not images:
            raise InputError(f"{name}: has no {split} images but junk (identity -1)")
    identity_of = {os.path.realpath(image.path): image.identity for image in gallery}
    named = [image for image in query if image.identity is not None]
    beside = (image.path for image in query if image.identity is None)
    nameless = next((path for path in beside if not named or os.path.realpath(path) not in identity_of), None)
    if nameless is not None:
        raise InputError(
            f"{nameless}: a query without identity; name files like 0002_c1.jpg, or put them into folders named "
            "after the identities"
        )
    query = named
    images = [*query, *gallery]
    pids = numbered(image.identity for image in images)
    cameras = numbered(image.camera for image in images)
    for what, names_of in (("identities", pids), ("cameras", cameras)):
        warn_of_spellings(names_of, f"{name}: {what}")
    has_cameras = all(image.camera is not None for image in images)
    twice = [image for image in query if os.path.realpath(image.path) in identity_of]
    for image in twice:
        if image.identity != (other := identity_of[os.path.realpath(image.path)]):
            raise InputError(
                f"{image.path}: shows {image.identity} as a query, in the gallery {other or 'nobody with a name'}; "
                "name the same folder twice, or two that do not overlap"
            )

    def records(images: Sequence[Listed]) -> tuple[Record, ...]:
        return tuple(
            Record(
                image.path,
                DISTRACTOR if image.identity is None else pids[image.identity],
                cameras[image.camera] if has_cameras and image.camera is not None else NO_CAMERA,
            )
            for image in images
        )

    names = Names(*({number: name for name, number in numbers.items()} for numbers in (pids, cameras)))
    return QueryGallery(
        name, "unseen", records(query), records(gallery), in_gallery=len(twice), names=names, has_cameras=has_cameras
    )


def numbered(names: Iterable[str | None]) -> dict[str, int]:
    """Each name's position, from 1, in ascending order: as numbers where all are integers, else as text."""
    ranks = ascending_ranks(name for name in names if name is not None)
    return {name: rank + 1 for name, rank in ranks.items()}
