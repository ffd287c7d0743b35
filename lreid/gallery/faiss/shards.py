"""A faiss index in parts that are searched side by side, for a machine with many cores.

Every part knows its images by their keys in the whole gallery, and selectors speak of these keys; the best of all parts
are merged here. faiss's own ``IndexShards`` numbers the images of each part from 0 and hands a selector on as it
is, so with ``successive_ids`` it finds images that the selector forbids (faiss issue 5581).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lreid.errors import ArgumentError
from lreid.gallery.faiss.index import gpu_copy, nearest, new_index, stored_vectors, without
from lreid.retrieval.faiss_module import MOST_ON_GPU


class Shards:
    """A faiss index in one part or several. An image of key ``n`` is in part ``n % len(parts)``."""

    def __init__(self, kind: str, parts: list[Any]):
        self.kind = kind
        self.parts = parts
        self.gpu: int | None = None  # its number
        self.copies: list[Any] = []  # of the parts, on the GPU; none until they are needed

    def put_on(self, gpu: int) -> None:
        """From now on a GPU searches for what no filter narrows; the parts themselves stay where they are.

        Raises:
            InputError: as :func:`lreid.gallery.faiss.index.gpu_copy`.
        """
        self.gpu = gpu
        self.copies = [gpu_copy(part, self.kind, gpu) for part in self.parts]

    @classmethod
    def build(cls, kind: str, vectors: np.ndarray, keys: np.ndarray, count: int) -> Shards:
        """An index of ``(N, D)`` float32 rows of unit length.

        Raises:
            InputError: fewer than one part, an unknown kind, or too few images for one part of it.
        """
        if count < 1:
            raise ArgumentError("shards", f"is {count}; a gallery has at least one")
        if count == 1:
            return cls(kind, [new_index(kind, vectors, keys)])
        here = [keys % count == part for part in range(count)]
        return cls(kind, [new_index(kind, vectors[rows], keys[rows]) for rows in here])

    @property
    def d(self) -> int:
        """D, under the name that faiss gives it."""
        return self.parts[0].d

    @property
    def ntotal(self) -> int:
        """The number of images in all shards, under the name that faiss gives it."""
        return sum(part.ntotal for part in self.parts)

    def add(self, vectors: np.ndarray, keys: np.ndarray) -> None:
        """Adds each row to the shard of its key."""
        self.copies = []
        for number, part in enumerate(self.parts):
            here = keys % len(self.parts) == number
            if here.any():
                part.add_with_ids(vectors[here], keys[here])

    def remove(self, keys: np.ndarray, drop: np.ndarray) -> None:
        """Deletes those of all the keys, ``(N,)`` ascending, that ``drop``, ``(N,)`` bool, names."""
        self.copies = []
        for number, part in enumerate(self.parts):
            here = keys % len(self.parts) == number
            if drop[here].any():
                self.parts[number] = without(part, self.kind, keys[here], drop[here])

    def vectors(self, keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """``(W, D)`` rows of the wanted keys; ``keys`` are all of them, ascending.

        Raises:
            InputError: the kind keeps no features.
        """
        rows = np.empty((len(wanted), self.d), dtype=np.float32)
        for number, part in enumerate(self.parts):
            here = wanted % len(self.parts) == number
            own = keys[keys % len(self.parts) == number]
            rows[here] = stored_vectors(part, self.kind, np.searchsorted(own, wanted[here]))
        return rows

    def search(self, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Scores and keys of the best ``k`` images, see :func:`lreid.gallery.faiss.index.nearest`."""
        parts = self.parts
        if self.gpu is not None and allowed is None and k <= MOST_ON_GPU:  # there faiss ignores selectors
            self.copies = self.copies or [gpu_copy(part, self.kind, self.gpu) for part in self.parts]
            parts = self.copies

        def search(number: int) -> tuple[np.ndarray, np.ndarray]:
            count = 0 if allowed is None else int(allowed[number :: len(self.parts)].sum())
            return nearest(parts[number], self.kind, vectors, k, allowed, count)

        if len(self.parts) == 1:
            return search(0)
        with ThreadPoolExecutor(len(self.parts)) as pool:  # faiss releases the interpreter
            results = list(pool.map(search, range(len(self.parts))))
        scores, keys = (np.concatenate(each, axis=1) for each in zip(*results, strict=True))  # (Q, parts * k)
        scores = np.where(keys >= 0, scores, -np.inf)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, best, 1), np.take_along_axis(keys, best, 1)
