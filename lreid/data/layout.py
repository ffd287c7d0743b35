"""Shared parts of the data set readers: list images, read identity and camera from names, make splits."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.records import CameraPolicy, DataSet, Record
from lreid.errors import InputError
from lreid.identities import DISTRACTOR, JUNK

logger = logging.getLogger("lreid")

HEIF = find_spec("pillow_heif") is not None  # images of telephones
# Of images: what lreid.data.images.FORMATS can read.
SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".avif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
SUFFIXES += (".heic", ".heif") if HEIF else ()
OF_SYSTEMS = ("desktop.ini", "thumbs.db")  # files that Windows puts into folders of images


def describe_folder(folder: Path, limit: int = 8) -> str:
    """The content of a folder, for an error message: ``FOLDER holds a, b, c and 12 more``."""
    if not folder.is_dir():
        return f"{folder} does not exist"
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    if not names:
        return f"{folder} is empty"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{folder} holds {', '.join(names[:limit])}{more}"


def visible_images(folder: Path, others: Counter[str] | None = None) -> list[Path]:
    """The images directly in a folder, by their suffix in any case, sorted by name.

    Hidden files are none: macOS puts a ``._0001.jpg``, which is no image, next to ``0001.jpg``.

    Args:
        folder: to list.
        others: counts the files with another suffix, for :func:`warn_of_others`; None warns of those of this folder.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and not entry.is_dir()]
    passed_over = Counter(
        Path(name).suffix.lower() or "no suffix"
        for name in names
        if not name.lower().endswith((*SUFFIXES, *OF_SYSTEMS))
    )
    if others is None:
        warn_of_others(folder, passed_over)
    else:
        others.update(passed_over)
    return [folder / name for name in sorted(names) if name.lower().endswith(SUFFIXES)]


def warn_of_others(folder: Path, others: Counter[str]) -> None:
    """Warns of files that are not read because their suffix is not that of an image: how many of which suffix."""
    if others:
        counts = ", ".join(f"{suffix}: {count}" for suffix, count in sorted(others.items()))
        logger.warning(
            "%s: %d files are not read, since their suffix is no image's (%s); convert images to .jpg or .png%s",
            folder,
            sum(others.values()),
            counts,
            "" if HEIF else ", or install lreid[heif] for .heic" * (".heic" in others),
        )


def read_folders(name: str, home: Path, folders: Mapping[str, str], pattern: str, example: str) -> DataSet:
    """A data set with one folder per split, whose file names contain identity and camera.

    Args:
        name: name of the data set.
        home: the folder of the data set.
        folders: the folder in it of each of ``train``, ``query`` and ``gallery``.
        pattern: regular expression of a whole file name without its suffix, with the groups ``pid`` and ``camid``.
        example: a file name that fits, for the error message.

    Returns:
        The records in the order of the file names, without junk and with no distractor in train.

    Raises:
        InputError: the name of an image does not fit the pattern, two have the same, or a split has no image.
    """
    records = {split: read_folder(home / folder, pattern, example) for split, folder in folders.items()}
    records["train"] = [record for record in records["train"] if record.pid != DISTRACTOR]
    splits: dict[str, Any] = {split: tuple(images) for split, images in records.items()}
    data_set = DataSet(name, **splits)
    return require_splits(data_set, {split: home / folder for split, folder in folders.items()})


def read_folder(folder: Path, pattern: str, example: str, *, camid: int | None = None) -> list[Record]:
    """The images of one folder, whose names contain identity and camera, without junk.

    Args:
        folder: where they lie, without folders below.
        pattern: regular expression of a whole file name without its suffix, with the groups ``pid`` and, unless
            ``camid`` is given, ``camid``.
        example: a file name that fits, for the error message.
        camid: camera of all images, where the folder names it.

    Returns:
        The records in the order of the file names.

    Raises:
        InputError: the name of an image does not fit the pattern, or two differ by their suffix alone.
    """
    records = []
    files: dict[str, Path] = {}
    for path in visible_images(folder):
        match = re.fullmatch(pattern, path.stem)
        if match is None:
            raise InputError(f"{path}: unexpected name; expected one like {example}: rename or remove it")
        if (other := files.setdefault(path.stem, path)) != path:
            raise InputError(f"{path}: is called like {other.name} but for the suffix; remove one of the two")
        if int(match["pid"]) != JUNK:
            camera = int(match["camid"]) if camid is None else camid
            records.append(Record(str(path), int(match["pid"]), camera))
    return records


def random_half(pids: Iterable[int], *, seed: Sequence[int]) -> set[int]:
    """Half of the identities, rounded down, to train on; the others are tested on."""
    distinct = sorted(set(pids))
    order = np.random.default_rng(seed).permutation(len(distinct))
    return {distinct[i] for i in order[: len(distinct) // 2]}


def cameras_of_test(policy: CameraPolicy) -> tuple[int, int]:
    """The cameras that queries and gallery get where a data set has none.

    ``"apart"`` gives 0 and 1: every image of the query's identity counts, as in PatchKD. ``"same"`` gives 0 and 0,
    as in AKA's released code: nothing is left to find unless the camera filter is off.
    """
    return {"apart": (0, 1), "same": (0, 0)}[policy]


def require_splits(data_set: DataSet, sources: Mapping[str, Path]) -> DataSet:
    """Hands the data set back when none of its splits is empty.

    ``sources`` name the folder or file that each split was read from; a set for testing only has no ``train``.

    Raises:
        InputError: a split has no image.
    """
    for split, source in sources.items():
        if not getattr(data_set, split):
            content = f"; {describe_folder(source)}" if source.is_dir() else ""
            raise InputError(f"{source}: no images for the {split} split of {data_set.name}{content}; add some")
    return data_set
