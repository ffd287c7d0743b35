"""The interface of a gallery's storage engine: store rows and find the nearest ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lreid.errors import InputError
from lreid.gallery.filters import Filter

SCHEME = "milvus:"  # before the address of a database

Paths = Sequence[str] | np.ndarray  # names of images


@dataclass(frozen=True)
class Rows:
    """Labels, times and paths of N images.

    Attributes:
        keys: ``(N,)`` int64, ascending; how the engine calls the images. A key stays when others are removed.
        ids, cams, times: ``(N,)`` int64; -1 is not known. Times are seconds.
        paths: ``(N,)`` strings, each once.
    """

    keys: np.ndarray
    ids: np.ndarray
    cams: np.ndarray
    times: np.ndarray
    paths: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: np.ndarray | slice) -> Rows:
        return Rows(*(column[rows] for column in vars(self).values()))


@dataclass
class About:
    """Facts about a whole gallery.

    Attributes:
        model: fingerprint of the model that made the features.
        kind: ``flat`` (exact), ``hnsw`` or ``ivfpq``; see :mod:`lreid.gallery.faiss.index`.
        recall: ``{k: recall@k}`` against exact search, measured when the gallery was built; empty if it was not.
        threshold: cosine similarity below which a search returns "unknown"; ``None`` before it is calibrated.
        false_accept_rate: share of impostors that the threshold accepts.
        calibrated_on: images that it was set with; None where that is not known.
        names: by ``identity`` and ``camera``, the names that numbers stand for. Other numbers stand for themselves.
        extras: arrays that travel with the gallery, for instance statistics its features were normalised with. They
            are given when it is built and stay.
        shards: parts of a faiss index, searched side by side.
        whole: False while a gallery is being filled and must not be searched yet.
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
    """Rows of one gallery. Everything that comes in was checked by :class:`lreid.gallery.gallery.Gallery`.

    Attributes:
        about: description of the gallery; stored by :meth:`save`.
    """

    about: About

    @property
    def width(self) -> int:
        """D, the numbers of a feature."""

    def count(self, where: Filter) -> int:
        """The number of images that a filter allows."""

    def add(self, vectors: np.ndarray, labels: Rows) -> None:
        """Adds ``(N, D)`` float32 rows of unit length. Their keys are the store's to choose; names go first."""

    def remove(self, keys: np.ndarray) -> None:
        """Deletes rows that are there."""

    def keys_of(self, paths: Paths) -> np.ndarray:
        """``(N,)`` int64 keys of the images of these paths; -1 where there is none."""

    def labels(self) -> Rows:
        """Labels of all images, by ascending keys."""

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """``(N, D)`` float32 features of images.

        Raises:
            InputError: the kind keeps no features, or an image is not there.
        """

    def nearest(self, vectors: np.ndarray, k: int, where: Filter) -> tuple[np.ndarray, Rows]:
        """The best images that a filter allows, for ``(Q, D)`` float32 queries of unit length.

        Returns:
            ``(Q, k)`` cosine similarities, best first, and labels in the same shape; beyond the last image found
            numbers are -1 and paths "".
        """

    def finish(self) -> None:
        """Makes a gallery whole that was built to be filled, and saves it."""

    def save(self, path: str | Path | None = None) -> None:
        """Keeps what :attr:`about` says, and all that is not kept yet."""

    def close(self) -> None:
        """Lets go of files and connections."""


class Place(Protocol):
    """Where a gallery is, or will be; its next and previous version are next to it."""

    def exists(self) -> bool:
        """Whether a gallery is there, whole or not."""

    def load(self, memory_map: bool = False) -> Store:
        """The gallery.

        Raises:
            InputError: there is none, or it cannot be used.
        """

    def build(self, vectors: np.ndarray, labels: Rows, about: About) -> Store:
        """A new gallery with these rows. It appears when it is saved, or finished if it is not whole yet."""

    def bytes(self) -> int | None:
        """Its size on disk; None where it is not known."""

    def delete(self) -> None:
        """Takes this version away; the others stay."""

    def others(self) -> list[Any]:
        """Places of all other versions that are there, older and newer ones."""

    def beside(self) -> list[str]:
        """Names of all that was kept besides this version: other ones, and files that a process is writing."""

    def next(self) -> Place:
        """Where the next version is made."""

    def previous(self) -> Place:
        """Where the version before this one is kept."""

    def switch(self, current: Any) -> None:
        """The next version takes this place in one step; what was here becomes the previous one.

        Args:
            current: the store that was here when the next version was found to be whole.

        Raises:
            InputError: what is here has changed since; nothing is done.
        """

    def roll_back(self) -> None:
        """The previous version takes this place in one step; what was here becomes the next one.

        Raises:
            InputError: there is no previous version.
        """


def require_keys(keys: np.ndarray, there: np.ndarray) -> None:
    """Refuses keys of images that are not there.

    Raises:
        InputError: one is not; it is named.
    """
    missing = keys[~np.isin(keys, there)]
    if len(missing):
        raise InputError(f"key {missing[0]}: no image of the gallery has it; take keys from labels or matches")


def hash_of(text: str) -> int:
    """A number from 1 to 2^63 - 1 that all who ask for the same text get."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


def place_of(where: str | Path) -> Place:
    """The place that an address names.

    Args:
        where: a file; ``milvus:FILE.db``, a database of Milvus Lite in this process; or ``milvus:http://host:port``, a
            Milvus server or cluster; the last two with ``/NAME`` at the end if they hold several galleries.

    Raises:
        InputError: an address of Milvus that is none.
    """
    text = str(where)
    if not text.startswith(SCHEME):
        from lreid.gallery.faiss.faiss_store import FilePlace

        return FilePlace.named(text)
    from lreid.gallery.milvus.place import MilvusPlace  # so that files need nothing of it

    return MilvusPlace.parse(text)
