"""Functions that several data sets share: read labels from file names and lists, make splits."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.listing import visible_images
from lreid.data.records import SPLITS, DataSet, Record
from lreid.data.spec import require_images
from lreid.errors import InputError
from lreid.utils.identities import DISTRACTOR, JUNK


def read_folders(name: str, home: Path, folders: Mapping[str, str], pattern: str, example: str) -> DataSet:
    """Read a data set with one folder per split, whose file names contain identity and camera.

    Args:
        home: the folder of the data set.
        folders: names of the subfolders of the splits ``train``, ``query`` and ``gallery``. A split without a
            folder, or whose folder does not exist, is empty; :meth:`lreid.data.spec.Spec.load` refuses such a data set.
        pattern: regular expression for a whole file name without its suffix, with the groups ``pid`` and ``camid``.
        example: a file name that matches, for the error message.

    Returns:
        The records, sorted by file name. Junk is left out of all splits, and distractors are left out of ``train``.

    Raises:
        InputError: the name of an image does not match the pattern, two images have the same name, or a folder has no
            image.
    """
    there = {split: home / folder for split, folder in folders.items() if (home / folder).is_dir()}
    splits: dict[str, Any] = dict.fromkeys(SPLITS, ())
    splits |= {split: tuple(read_folder(folder, pattern, example)) for split, folder in there.items()}
    splits["train"] = tuple(record for record in splits["train"] if record.pid != DISTRACTOR)
    data_set = DataSet(name, **splits)
    for split, folder in there.items():
        require_images(data_set, split, folder)
    return data_set


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


def split_by_identity(
    name: str, trained: Container[int], train: Iterable[Record], query: Iterable[Record], gallery: Iterable[Record]
) -> DataSet:
    """Make a data set whose training images show the identities in ``trained``, and whose test images show others."""
    return DataSet(
        name,
        train=tuple(record for record in train if record.pid in trained),
        query=tuple(record for record in query if record.pid not in trained),
        gallery=tuple(record for record in gallery if record.pid not in trained),
    )
