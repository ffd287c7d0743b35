"""Check the labels of a gallery's images, and convert them to the integers that a store takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import ArgumentError
from lreid.gallery.store import Rows, hash_of
from lreid.identities import UNKNOWN, as_labels, as_names, warn_of_spellings

Files = str | Path | Sequence[str | Path] | np.ndarray  # names of images: paths or text
Names = dict[str, dict[int, str]]  # names of identities and cameras, by number
PLURAL = {"identity": "identities", "camera": "cameras"}
LABELS = tuple(PLURAL)


def names_of(paths: Files) -> list[str]:
    """Names of images as text: ``Path("a.jpg")`` and ``"a.jpg"`` name the same image.

    Raises:
        InputError: ``paths`` is neither one name nor a list of names.
    """
    if isinstance(paths, (str, os.PathLike)):
        return [str(paths)]
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise ArgumentError("paths", f"is {paths!r}; give a list of names, such as ['a.jpg', 'b.jpg']")
    return [str(path) for path in paths]


def checked_labels(count: int, ids: Any, cams: Any, times: Any, paths: list[str], names: Names) -> tuple[Rows, Names]:
    """Return the labels of new images as integers, without keys, and all names, including new names."""
    if len(paths) != count:
        raise ArgumentError("paths", f"has {len(paths)} names, but there are {count} feature rows")
    if len(set(paths)) != count:
        raise ArgumentError("paths", "contains a name twice; give every image a different name")
    unknown, columns, names = np.full(count, UNKNOWN), [], dict(names)
    for what, column in zip(LABELS, (ids, cams), strict=True):
        labels = unknown if column is None else as_names(column, f"gallery {PLURAL[what]}", count)
        old_names = names.get(what, {})
        columns.append(numbers_of(labels, old_names))
        if labels.dtype == object:
            new = dict(zip(columns[-1].tolist(), labels.tolist(), strict=True))
            names[what] = {number: name for number, name in (old_names | new).items() if number != UNKNOWN}
            warn_of_spellings(names[what].values(), f"gallery {PLURAL[what]}")
    seconds = unknown if times is None else as_labels(times, "gallery times", count)
    identities, cameras = columns
    return Rows(unknown, identities, cameras, seconds, np.array(paths, dtype=object)), names


def numbers_of(labels: np.ndarray, names: dict[int, str]) -> np.ndarray:
    """``(N,)`` int64 numbers of labels. The number of a new text is its hash; "-1" means unknown."""
    if labels.dtype == np.int64:
        return labels
    numbers = {name: number for number, name in names.items()} | {str(UNKNOWN): UNKNOWN}
    return np.array([numbers[label] if label in numbers else hash_of(label) for label in labels], dtype=np.int64)


def as_given(numbers: np.ndarray, names: dict[int, str] | None) -> np.ndarray:
    """Labels as the gallery got them: integers, or text (dtype object, None if unknown) if there are names."""
    if not names:
        return numbers
    given = np.empty(numbers.size, dtype=object)
    given[:] = [None if number == UNKNOWN else names.get(number, number) for number in numbers.ravel().tolist()]
    return given.reshape(numbers.shape)
