"""Functions that several data set readers share: list images, read labels from file names, make splits."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.records import CameraPolicy, DataSet, Record
from lreid.errors import InputError, counted
from lreid.utils.identities import DISTRACTOR, JUNK

logger = logging.getLogger("lreid")

HEIF = find_spec("pillow_heif") is not None  # reads the .heic images that phones take
# Suffixes of images that lreid.data.images.FORMATS can read.
SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".avif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
SUFFIXES += (".heic", ".heif") if HEIF else ()
OF_SYSTEMS = ("desktop.ini", "thumbs.db")  # files that Windows adds to folders of images


def describe_folder(folder: Path, limit: int = 8) -> str:
    """Describe the content of a folder for a message: ``FOLDER holds a, b, c and 12 more``."""
    if not folder.is_dir():
        return f"{folder} does not exist"
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    if not names:
        return f"{folder} is empty"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{folder} holds {', '.join(names[:limit])}{more}"


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


def read_folders(name: str, home: Path, folders: Mapping[str, str], pattern: str, example: str) -> DataSet:
    """Read a data set with one folder per split, whose file names contain identity and camera.

    Args:
        home: the folder of the data set.
        folders: names of the subfolders of the splits ``train``, ``query`` and ``gallery``.
        pattern: regular expression for a whole file name without its suffix, with the groups ``pid`` and ``camid``.
        example: a file name that matches, for the error message.

    Returns:
        The records, sorted by file name. Junk is left out of all splits, and distractors are left out of ``train``.

    Raises:
        InputError: the name of an image does not match the pattern, two images have the same name, or a split has no
            image.
    """
    records = {split: read_folder(home / folder, pattern, example) for split, folder in folders.items()}
    records["train"] = [record for record in records["train"] if record.pid != DISTRACTOR]
    splits: dict[str, Any] = {split: tuple(images) for split, images in records.items()}
    data_set = DataSet(name, **splits)
    return require_splits(data_set, {split: home / folder for split, folder in folders.items()})


def read_folder(folder: Path, pattern: str, example: str, *, camid: int | None = None) -> list[Record]:
    """Read a folder of images whose file names contain identity and camera; junk is left out.

    Args:
        folder: folder of the images; subfolders are ignored.
        pattern: regular expression for a whole file name without its suffix, with the group ``pid``. The group
            ``camid`` is required unless the argument ``camid`` is given.
        example: a file name that matches, for the error message.
        camid: camera of all images in the folder; None reads cameras from the file names.

    Returns:
        The records, sorted by file name.

    Raises:
        InputError: the name of an image does not match the pattern, or two names differ only in their suffixes.
    """
    records = []
    files: dict[str, Path] = {}
    for path in visible_images(folder):
        match = re.fullmatch(pattern, path.stem)
        if match is None:
            raise InputError(f"{path}: unexpected name; expected one like {example}: rename or remove the file")
        if (other := files.setdefault(path.stem, path)) != path:
            raise InputError(f"{path}: has the same name as {other.name} except for the suffix; remove one of the two")
        if int(match["pid"]) != JUNK:
            camera = int(match["camid"]) if camid is None else camid
            records.append(Record(str(path), int(match["pid"]), camera))
    return records


def read_lines(file: Path, pattern: str, example: str, *, first: int = 1) -> Iterator[re.Match[str]]:
    """Match a regular expression with each line of a list that is not empty, and yield the matches.

    Args:
        pattern: regular expression for a whole line without white space around it.
        example: a line that matches, for the error message.
        first: number of the first line to read, counted from 1.

    Raises:
        InputError: a line does not match the regular expression.
    """
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines[first - 1 :], start=first):
        if text := line.strip():
            match = re.fullmatch(pattern, text)
            if match is None:
                raise InputError(
                    f"{file}:{number}: unexpected line {text!r}; expected one like {example!r}: take the file from "
                    "the archive again"
                )
            yield match


def random_half(pids: Iterable[int], *, seed: Sequence[int]) -> set[int]:
    """Draw a random half of the identities (rounded down) for training; the others are test identities."""
    distinct = sorted(set(pids))
    order = np.random.default_rng(seed).permutation(len(distinct))
    return {distinct[i] for i in order[: len(distinct) // 2]}


def cameras_of_test(policy: CameraPolicy) -> dict[str, int]:
    """Return camera numbers for the splits ``train``, ``query`` and ``gallery`` of data sets without cameras.

    With ``"apart"``, queries have camera 0 and gallery images have camera 1, as in PatchKD, so the camera filter leaves
    out no image. With ``"same"``, queries and gallery images both have camera 0, as in AKA's released code. With
    ``"same"``, the camera filter must be off, because it would leave out all matches.
    """
    return {"train": 0, "query": 0, "gallery": {"apart": 1, "same": 0}[policy]}


def require_splits(data_set: DataSet, sources: Mapping[str, Path]) -> DataSet:
    """Return the data set if it has no empty split.

    Args:
        sources: folder or file of each split to check, for the error message; ``train`` is checked only if ``sources``
            contains it.

    Raises:
        InputError: a split has no image.
    """
    for split, source in sources.items():
        if not getattr(data_set, split):
            content = f"; {describe_folder(source)}" if source.is_dir() else ""
            raise InputError(f"{source}: no images for the {split} split of {data_set.name}{content}; add some")
    return data_set
