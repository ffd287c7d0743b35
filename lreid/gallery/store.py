"""Interface of a gallery's storage engine, which stores rows of features and labels and finds the nearest rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.gallery.filters import Filter
from lreid.utils.identities import UNKNOWN, as_labels, as_names, warn_of_spellings

SCHEME = "milvus:"  # prefix of the address of a database

Paths = Sequence[str] | np.ndarray  # names of images
Files = str | Path | Sequence[str | Path] | np.ndarray  # names of images: paths or text
LabelNames = dict[str, dict[int, str]]  # names of identities and cameras, by number
PLURAL = {"identity": "identities", "camera": "cameras"}
LABELS = tuple(PLURAL)


@dataclass(frozen=True)
class GalleryRows:
    """Labels, times and paths of N images.

    Attributes:
        keys: ``(N,)`` int64, the engine's keys of the images in ascending order. Removing images does not change the
            keys of other images.
        ids, cams, times: ``(N,)`` int64; -1 means unknown. Times are in seconds.
        paths: ``(N,)`` different strings.
    """

    keys: np.ndarray
    ids: np.ndarray
    cams: np.ndarray
    times: np.ndarray
    paths: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: np.ndarray | slice) -> GalleryRows:
        return GalleryRows(*(column[rows] for column in vars(self).values()))


@dataclass
class About:
    """Properties of a whole gallery.

    Attributes:
        model: fingerprint of the model that computed the features.
        kind: ``flat`` (exact), ``hnsw`` or ``ivfpq``; see :mod:`lreid.gallery.shards`.
        recall: ``{k: recall@k}`` compared with exact search, measured when the gallery was built; empty if unknown.
        threshold: cosine similarity below which a search returns "unknown", or ``None`` before calibration.
        false_accept_rate: share of impostors that the threshold accepts.
        calibrated_on: number of images from which the threshold was computed, or None if unknown.
        names: text label of each number, for the keys ``identity`` and ``camera``. A number without a name is itself
            the label.
        extras: arrays that are stored with the gallery, for example statistics that normalise its features. The extras
            are set when the gallery is built and never change.
        shards: number of parts of a faiss index, which are searched in parallel.
        whole: False while the gallery is being filled, when it must not be searched.
    """

    model: str
    kind: str = "flat"
    recall: dict[int, float] = field(default_factory=dict)
    threshold: float | None = None
    false_accept_rate: float | None = None
    calibrated_on: int | None = None
    names: dict[str, dict[int, str]] = field(default_factory=dict)
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    shards: int = 1
    whole: bool = True


class Store(Protocol):
    """Storage engine of a gallery; :class:`lreid.gallery.gallery.Gallery` checks all arguments before its calls.

    Attributes:
        about: properties of the gallery, which :meth:`save` stores.
    """

    about: About

    @property
    def width(self) -> int:
        """Length D of a feature."""

    def count(self, where: Filter) -> int:
        """Number of images that a filter allows."""

    def add(self, vectors: np.ndarray, labels: GalleryRows) -> None:
        """Add new names, then rows ``(N, D)`` float32 of unit length. The store chooses the keys."""

    def remove(self, keys: np.ndarray) -> None:
        """Delete existing rows."""

    def keys_of(self, paths: Paths) -> np.ndarray:
        """Return the keys ``(N,)`` int64 of the images with these paths, -1 for unknown paths."""

    def labels(self) -> GalleryRows:
        """Labels of all images, ordered by key."""

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Return the features ``(N, D)`` float32 of images, or refuse if the gallery stores only codes."""

    def nearest(self, vectors: np.ndarray, k: int, where: Filter) -> tuple[np.ndarray, GalleryRows]:
        """Return the best images that a filter allows, for queries ``(Q, D)`` float32 of unit length.

        Returns:
            Cosine similarities ``(Q, k)``, best first, and labels of the same shape; missing results have numbers -1
            and paths "".
        """

    def finish(self) -> None:
        """Complete a gallery that was built with ``whole=False``, and save it."""

    def save(self, path: str | Path | None = None) -> None:
        """Save :attr:`about` and all rows that are not saved yet."""

    def close(self) -> None:
        """Close files and connections."""


def require_keys(keys: np.ndarray, there: np.ndarray) -> None:
    """Check that images with these keys exist."""
    missing = keys[~np.isin(keys, there)]
    if len(missing):
        raise InputError(f"key {missing[0]}: no image in the gallery has this key; use keys from labels or matches")


def hash_of(text: str) -> int:
    """Hash a text to a number from 1 to 2^63 - 1."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


def names_of(paths: Files) -> list[str]:
    """Convert names of images to text; ``Path("a.jpg")`` and ``"a.jpg"`` name the same image."""
    if isinstance(paths, (str, os.PathLike)):
        return [str(paths)]
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise ArgumentError("paths", f"is {paths!r}; give a list of names, such as ['a.jpg', 'b.jpg']")
    return [str(path) for path in paths]


def checked_labels(
    count: int, ids: Any, cams: Any, times: Any, paths: list[str], names: LabelNames
) -> tuple[GalleryRows, LabelNames]:
    """Return the labels of new images as integers (without keys), and all names of the gallery including new ones."""
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
    return GalleryRows(unknown, identities, cameras, seconds, np.array(paths, dtype=object)), names


def numbers_of(labels: np.ndarray, names: dict[int, str]) -> np.ndarray:
    """Return the numbers ``(N,)`` int64 of labels; a new text gets its hash, and the text "-1" means unknown."""
    if labels.dtype == np.int64:
        return labels
    numbers = {name: number for number, name in names.items()} | {str(UNKNOWN): UNKNOWN}
    return np.array([numbers[label] if label in numbers else hash_of(label) for label in labels], dtype=np.int64)


def as_given(numbers: np.ndarray, names: dict[int, str] | None) -> np.ndarray:
    """Return labels in the form in which they were given: integers, or text (dtype object, None if unknown)."""
    if not names:
        return numbers
    given = np.empty(numbers.size, dtype=object)
    given[:] = [None if number == UNKNOWN else names.get(number, number) for number in numbers.ravel().tolist()]
    return given.reshape(numbers.shape)
