"""List the images of folders with labels that their names or a pattern give, and make data sets of listed images."""

import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from statistics import median_low
from typing import Any, NamedTuple

from tabulate import tabulate

from lreid.data.images import HEIF, SUFFIXES
from lreid.data.records import CameraPolicy, DataSet, Names, QueryGallery, Record, cameras_of_test
from lreid.errors import ArgumentError, InputError, counted
from lreid.utils.identities import DISTRACTOR, JUNK, ascending_ranks, is_junk, require_written, warn_of_spellings
from lreid.utils.reading import escaped, raise_if_unreadable

logger = logging.getLogger("lreid")

OF_SYSTEMS = ("desktop.ini", "thumbs.db")  # files that Windows adds to folders of images
# A file name without its suffix: 0002_c1s1_000451_03 (Market-1501) or 0001_c001_00016450_0 (VeRi-776).
MARKET_NAME = re.compile(r"(?P<identity>-1|\d+)_c(?P<camera>\d+)(?:s\d+)?(?:_\w+)?")
# The camera as a separate part of a path: cam1_0.jpg, camera 2/0.jpg, 0002_c3s1.jpg; not c0ffee.jpg.
CAMERA = re.compile(r"(?:^|[^a-z0-9])c(?:am(?:era)?)?[-_ ]?(\d+)(?=$|[^a-z0-9]|s\d+(?![a-z0-9]))", re.IGNORECASE)
SPLIT_FOLDERS = {"train", "test", "val", "query", "gallery"}
RUN_FILES = {"config.yaml", "results.json"}  # a folder with both is the folder of a training run
LIST = "index.csv"  # if a folder contains this list, its labels replace those in the paths
NO_CAMERA = -1
PREVIEWED = 10  # number of images in a preview of a pattern
SHOWN = 3  # number of names in a message that cannot list all
# Common layouts, which suggested() tries in this order with the suffix of the images appended.
COMMON = ("{pid}/{date}_{camid}_{n}", "{pid}/{camid}_{n}", "{pid}_{camid}_{n}", "{camid}/{pid}/{name}")
FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")  # of a pattern


class Listed(NamedTuple):
    """An image with its labels.

    Attributes:
        path: path of the image file.
        identity: name of the identity; None if it is unknown or the image is a distractor.
        camera: name of the camera, or None if it is unknown.
        time: time at which the image was taken, as written in a table; empty if unknown.
        split: ``train``, ``query`` or ``gallery``; empty if unknown.
        domain: name of the data set to which a table assigns the image.
        line: line number in the table, from 1; 0 for images of a folder.
    """

    path: str
    identity: str | None
    camera: str | None
    time: str = ""
    split: str = ""
    domain: str = ""
    line: int = 0


@dataclass(frozen=True)
class Pattern:
    """A pattern for image paths.

    The field ``{pid}`` matches the identity, ``{camid}`` matches the camera, and ``{n}`` matches digits. A field with
    any other name matches any text, which lreid ignores. No field matches a slash. If a field occurs twice in the
    pattern, it must match the same text in both places. The pattern ``{pid}/{date}_{camid}_{n}.jpg`` matches
    ``anna/2024-05-01_front_0001.jpg``.

    Attributes:
        text: the pattern as the user typed it.

    Raises:
        ArgumentError: the pattern has neither ``{pid}`` nor ``{camid}``, or a brace in it does not enclose a field.
    """

    text: str

    def __post_init__(self) -> None:
        fields, rest = FIELD.findall(self.text), FIELD.sub("", self.text)
        if not {"pid", "camid"} & {*fields} or "{" in rest or "}" in rest or self.text.startswith("/"):
            raise ArgumentError(
                "pattern",
                f"is {self.text!r}; write fields in braces with {{pid}} or {{camid}} among them, as in "
                "{pid}/{camid}_{n}.png",
            )

    @property
    def depth(self) -> int:
        """Number of path components that the pattern matches, including the file name."""
        return self.text.count("/") + 1

    def read(self, path: PurePath) -> tuple[str | None, str | None] | None:
        """Read identity and camera from a path.

        Args:
            path: path relative to the folder of the images.

        Returns:
            Identity and camera; a value is None if the pattern lacks its field. If the path does not match the pattern,
            the result is None.
        """
        match = self._regex.fullmatch(path.as_posix())
        return None if match is None else (match.groupdict().get("pid"), match.groupdict().get("camid"))

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        parts, seen = [], set()
        for number, part in enumerate(FIELD.split(self.text)):
            if number % 2 == 0:
                parts.append(re.escape(part))
            elif part in seen:
                parts.append(f"(?P={part})")
            else:
                parts.append(rf"(?P<{part}>{r'[0-9]+' if part == 'n' else '[^/]+?'})")
                seen.add(part)
        return re.compile("".join(parts))


def suggested(paths: Collection[PurePath]) -> str:
    """Suggest the first pattern of ``COMMON`` that matches all paths and reads plausible cameras from them.

    Cameras are plausible if more than half of the identities have several cameras, and more than half of the cameras
    saw several identities.

    Args:
        paths: image paths, relative to the folder of the data set.

    Returns:
        The pattern, or "" if no pattern of ``COMMON`` fits.
    """
    suffixes = {path.suffix for path in paths}
    suffix = suffixes.pop() if len(suffixes) == 1 else ".{suffix}"
    for pattern in (Pattern(each + suffix) for each in COMMON):
        labels = [label for label in map(pattern.read, paths) if label is not None]
        seen = Counter(pid for pid, _ in set(labels))
        shared = Counter(camid for _, camid in set(labels))
        if labels and len(labels) == len(paths) and min(map(median_low, (seen.values(), shared.values()))) > 1:
            return pattern.text
    return ""


def list_labelled(folder: Path, *, by_name: bool | None = None, pattern: Pattern | None = None) -> list[Listed]:
    """List all images in a folder and its subfolders, sorted by path.

    * If all file names have Market-1501's form (``0002_c1….jpg``), file names give identity and camera. Junk (-1) is
      left out, and distractors (0) have no identity.
    * Otherwise, the file names do not matter, and the subfolders of ``folder`` are named after identities. If the
      subfolders are named after cameras instead (``cam1/anna/….jpg``), their own subfolders are named after identities.
      Images outside such folders have no identity. Other parts of the path may name the camera: ``anna/cam1/….jpg``,
      ``anna/0001_c2.jpg``.

    Args:
        folder: folder of the images. Hidden files and folders are skipped.
        by_name: whether file names give the labels; None means True if all file names have Market-1501's form.
        pattern: pattern that reads labels from paths instead of the rules above, see :func:`listed_by_pattern`.

    Raises:
        InputError: the folder does not exist, contains no image, or contains splits (``train``, ``query``) instead of
            identities; or most file names, but not all, have Market-1501's form, see :func:`named_as_market`.
    """
    files = image_files(folder)
    if pattern is not None:
        return listed_by_pattern(folder, files, pattern)
    if by_name is None:
        by_name = named_as_market(files)
    return listed_by_name(files) if by_name else listed_by_folder(folder, files)


def first_few(names: Collection[str]) -> str:
    """Shorten a list of names for a message: ``anna, ben, carl …``."""
    return ", ".join([*names][:SHOWN]) + " …" * (len(names) > SHOWN)


def camera_in(path: str) -> str | None:
    """Read the camera from a path: ``2`` from ``anna/cam2/07.jpg``, ``0002_c2s1.jpg`` and ``camera 02.jpg``."""
    match = CAMERA.search(path)
    return str(int(match[1])) if match else None


def listed_by_name(files: Iterable[Path]) -> list[Listed]:
    """List images with the labels in their file names, which have Market-1501's form; see :func:`list_labelled`."""
    listed = []
    for file in files:
        match = MARKET_NAME.fullmatch(file.stem)
        if match and (number := int(match["identity"])) != JUNK:
            identity = None if number == DISTRACTOR else str(number)
            listed.append(Listed(str(file), identity, str(int(match["camera"]))))
    return listed


def listed_by_pattern(folder: Path, files: Iterable[Path], pattern: Pattern) -> list[Listed]:
    """List the images of a folder with labels that a pattern reads from their relative paths; leave out junk (-1).

    Raises:
        InputError: a path does not match the pattern; the message names the first such path.
    """
    listed, others = [], []
    for file in files:
        if (labels := pattern.read(file.relative_to(folder))) is None:
            others.append(file)
        elif labels[0] is None or not is_junk(labels[0]):
            listed.append(_labelled(file, *labels))
    if others:
        count = f"{len(others)} of {len(listed) + len(others)} images"
        raise InputError(
            f"{others[0]}: the pattern {pattern.text} does not fit {count}, of which this is the first; correct the "
            f"pattern (it must match the path relative to {folder}), or move these images away"
        )
    return listed


def preview(folder: Path, pattern: Pattern) -> str:
    """Format a table of the identities and cameras that a pattern reads from examples in a folder."""
    files = image_files(folder)
    number = min(PREVIEWED, len(files))
    paths = [files[index * len(files) // number].relative_to(folder) for index in range(number)]
    rows = [(path.as_posix(), *(pattern.read(path) or ("does not fit", ""))) for path in paths]
    return f"{folder}: {pattern.text}\n" + tabulate(rows, ("image", "identity", "camera"), disable_numparse=True)


def listed_by_folder(folder: Path, files: Sequence[Path]) -> list[Listed]:
    """List images whose folders are named after identities, see :func:`list_labelled`.

    Raises:
        InputError: the folders are named after splits, such as ``train`` and ``query``, instead of identities.
    """
    inside = [file.relative_to(folder).parts for file in files]
    tops = {parts[0] for parts in inside if len(parts) > 1}
    if tops and tops <= SPLIT_FOLDERS:
        classes = f"; for image classification pass --data folder:{folder}" if "train" in tops else ""
        raise InputError(
            f"{folder}: {', '.join(sorted(tops))} are splits, not identities; pass one, such as {folder / max(tops)}, "
            f"or write {LIST} with the columns path,pid,split{classes}"
        )
    depth = int(bool(tops) and all(CAMERA.fullmatch(top) for top in tops))  # 1: cam1/anna/0001.jpg
    listed = []
    for file, (*above, name) in zip(files, inside, strict=True):
        identity = above[depth] if len(above) > depth else None
        camera = camera_in("/".join([*above[:depth], *above[depth + 1 :], name]))
        listed.append(_labelled(file, identity, camera))
    _warn_of_levels(folder, [above[depth : depth + 2] for *above, _ in inside])
    return listed


def _warn_of_levels(folder: Path, levels: Iterable[Sequence[str]]) -> None:
    """Warn if the folders of identities have the same subfolders, because these may be the people.

    Args:
        levels: names of the folder of an identity and of its subfolder, if any, per image.
    """
    pairs = {(*each,) for each in levels if len(each) == 2 and not CAMERA.fullmatch(each[1])}
    tops, names = ({pair[level] for pair in pairs} for level in range(2))
    if len(names) > 1 < len(tops) and 2 * len(pairs) > len(tops) * len(names):
        logger.warning(
            "%s: the identities (%s) have the same subfolders (%s); if these are the people, pass a pattern such as %s",
            *(folder, first_few(sorted(tops)), first_few(sorted(names)), "{camid}/{pid}/{name}.{suffix}"),
        )


def _labelled(file: Path, identity: str | None, camera: str | None) -> Listed:
    """Return an image with the labels in its path."""
    return Listed(str(file), require_written(identity, f"{file}: identity"), require_written(camera, f"{file}: camera"))


def visible_images(folder: Path, others: Counter[str] | None = None) -> list[Path]:
    """List the images of a folder, but not of its subfolders, sorted by name; images are recognised by their suffix.

    The suffix may be in upper or lower case. Hidden files are skipped, because macOS writes hidden files such as
    ``._0001.jpg`` that are not images.

    Args:
        others: counter of suffixes, to which this function adds the suffixes of all other files; the caller passes it
            to :func:`warn_of_others`. Without a counter, this function logs the warning itself.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and not entry.is_dir()]
    rest = [Path(name) for name in names if not name.lower().endswith((*SUFFIXES, *OF_SYSTEMS))]
    passed_over = Counter(file.suffix.lower() or "no suffix" for file in rest)
    if others is None:
        warn_of_others(folder, passed_over)
    else:
        others.update(passed_over)
    return [folder / name for name in sorted(names) if name.lower().endswith(SUFFIXES)]


def warn_of_others(folder: Path, others: Counter[str]) -> None:
    """Log a warning with the number of files per suffix that are not read as images."""
    if others:
        counts = ", ".join(f"{suffix}: {count}" for suffix, count in sorted(others.items()))
        logger.warning(
            "%s: lreid does not read %s without an image suffix (%s); convert images to .jpg or .png%s",
            folder,
            counted(sum(others.values()), "file"),
            counts,
            "" if HEIF else ", or install lreid[heif] for .heic" * (".heic" in others),
        )


def image_files(folder: Path) -> list[Path]:
    """List the image files in a folder and its subfolders, sorted; symbolic links to folders are followed.

    Folders of training runs are skipped, because the images in them are plots.

    Raises:
        InputError: the folder does not exist or contains no image, or a subfolder cannot be read.
    """
    if not folder.is_dir():
        fault = "is a file; name the folder of the images" if folder.exists() else "no such folder; check the path"
        raise InputError(f"{folder}: {fault}")
    others: Counter[str] = Counter()
    try:
        images = [image for each in _folders_below(folder, frozenset()) for image in visible_images(each, others)]
    except OSError as error:
        raise_if_unreadable(error, error.filename)
        raise
    warn_of_others(folder, others)
    if not images:
        raise InputError(f"{folder}: holds no images ({' '.join(SUFFIXES)}), directly or in subfolders; check the path")
    return sorted(images)


def _folders_below(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    """Yield a folder and its subfolders, without folders of runs; ``above`` prevents circles of symbolic links."""
    real = os.path.realpath(folder)
    with os.scandir(folder) as entries:
        names = {each.name: each.is_dir() for each in entries}
    if real not in above and not names.keys() >= RUN_FILES:
        yield folder
        for name, is_folder in names.items():
            if is_folder and not name.startswith("."):
                yield from _folders_below(folder / name, above | {real})


def named_as_market(files: Sequence[Path]) -> bool:
    """Whether all file names have Market-1501's form, with identity and camera.

    Raises:
        InputError: most file names, but not all, have Market-1501's form. Without the error, one file with another name
            would make lreid read all labels from folders.
    """
    others = [file for file in files if not MARKET_NAME.fullmatch(file.stem)]
    alike = len(files) - len(others)
    if others and alike > len(others):
        raise InputError(f"{others[0]}: is not named like the other {alike} images (0002_c1….jpg); rename or remove it")
    return not others


def folders_test(query: Path, gallery: Path, pattern: Pattern | None = None) -> QueryGallery:
    """Build a test set from a folder of queries and a folder of gallery images, see :func:`list_labelled`.

    Labels come from file names only if the file names in both folders have Market-1501's form.

    Raises:
        InputError: a folder has no images; or :func:`named_as_market` or :func:`own_test` raises an error.
    """
    by_name = pattern is None and named_as_market([*image_files(query), *image_files(gallery)])
    queries, images = (list_labelled(folder, by_name=by_name, pattern=pattern) for folder in (query, gallery))
    return own_test(escaped(gallery.resolve().name), queries, images)


def own_test(name: str, query: Sequence[Listed], gallery: Sequence[Listed]) -> QueryGallery:
    """Build a test set from listed images; identities and cameras are numbered from 1 in the order of their names.

    If the camera of any image is unknown, all images get the camera -1. An image may be both a query and a gallery
    image; ``in_gallery`` is the number of such images. An image without an identity that is in both lists is used only
    as a distractor in the gallery.

    Raises:
        InputError: a list is empty, a query outside the gallery has no identity, or a query has a different identity in
            the gallery list.
    """
    for split, images in (("query", query), ("gallery", gallery)):
        if not images:
            raise InputError(f"{name}: has no {split} images except junk (identity -1)")
    identity_of = {os.path.realpath(image.path): image.identity for image in gallery}
    named = [image for image in query if image.identity is not None]
    unnamed = (image.path for image in query if image.identity is None)
    nameless = next((path for path in unnamed if not named or os.path.realpath(path) not in identity_of), None)
    if nameless is not None:
        raise InputError(
            f"{nameless}: the query has no identity; name files like 0002_c1.jpg, or put them into folders that are "
            "named after the identities"
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
                f"{image.path}: is {image.identity} as a query, but {other or 'without identity'} in the gallery; "
                "pass the same folder twice, or two folders without a common image"
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


def data_set_of(name: str, images: Iterable[Listed], policy: CameraPolicy, *, has_cameras: bool) -> DataSet:
    """Make a data set of listed images with splits.

    Identities and cameras get the numbers ``0, 1, …`` in ascending order of their names. In the gallery, images without
    identity are distractors; in other splits, they are left out.

    Args:
        images: the images, in the order of the records.
        policy: rule for camera numbers without cameras, see :func:`lreid.data.records.cameras_of_test`.
        has_cameras: whether all images have cameras and the data set uses them.
    """
    images = list(images)
    pids = ascending_ranks(image.identity for image in images if image.identity is not None)
    cameras = ascending_ranks(image.camera for image in images if image.camera is not None) if has_cameras else {}
    splits: dict[str, Any] = {
        split: tuple(
            Record(image.path, pids.get(image.identity or "", len(pids)), cameras.get(image.camera or "", unknown))
            for image in images
            if image.split == split and (image.identity is not None or split == "gallery")
        )
        for split, unknown in cameras_of_test(policy).items()
    }
    names = Names(*({number: name for name, number in numbers.items()} for numbers in (pids, cameras)))
    return DataSet(name, **splits, names=names, has_cameras=has_cameras)


def numbered(names: Iterable[str | None]) -> dict[str, int]:
    """Map each name to a number from 1; the order is numerical if all names are integers, otherwise alphabetical."""
    ranks = ascending_ranks(name for name in names if name is not None)
    return {name: rank + 1 for name, rank in ranks.items()}
