"""Index of a gallery: unit vectors, whose dot products are cosine similarities, in one or several faiss indexes.

========  ==============================================  =========================  ==================
kind      how it searches                                 bytes per image            good for
========  ==============================================  =========================  ==================
flat      compares with every image: exact                4 D                        up to about 10^6
hnsw      follows a graph of neighbours                   4 D + 264                  10^6 with enough memory
ivfpq     searches the nearest of many lists of codes     D / 4 + 8                  10^6 and far beyond
========  ==============================================  =========================  ==================

lreid does not use ``IndexShards`` of faiss, because it returns images that a selector forbids (faiss issue 5581). With
``successive_ids``, ``IndexShards`` numbers the images of each part from 0, but does not adapt the selector to these
numbers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.retrieval.faiss_library import (
    INDEX_KINDS,
    MOST_ON_GPU,
    best_of,
    copies_on_gpus,
    gpus_of,
    import_faiss,
    new_index,
)

EXACT_UP_TO = 4096  # up to this (number of allowed images) x (share of allowed images), exact search takes no longer

Hits = tuple[np.ndarray, np.ndarray]  # (Q, k) each; missing results have the key -1


class Shards:
    """A faiss index in one or several parts (shards), which are searched in parallel.

    The image with key ``n`` is in the part ``n % len(parts)``. Parts and filters use the keys of the whole gallery.

    Attributes:
        kind: ``flat``, ``hnsw`` or ``ivfpq``.
        parts: faiss indexes that map rows to keys.
    """

    def __init__(self, kind: str, parts: list[Any]):
        self.kind = kind
        self.parts = parts
        self._gpus: list[int] = []
        self._copies: list[Any] = []  # copies of the parts on a GPU; empty until they are needed

    @classmethod
    def build(cls, kind: str, vectors: np.ndarray, count: int) -> Shards:
        """Build an index of ``(N, D)`` float32 rows of unit length, with the keys 0, 1, … in ``count`` parts."""
        if kind not in INDEX_KINDS:
            raise ArgumentError("kind", f"is {kind!r}; use flat, hnsw or ivfpq")
        if count < 1:
            raise ArgumentError("shards", f"is {count}; a gallery has at least one shard")
        parts = []
        for number in range(count):
            own = np.ascontiguousarray(vectors[number::count])
            parts.append(_with_keys(new_index(kind, own), kind))
            parts[-1].add_with_ids(own, np.arange(number, len(vectors), count))
        return cls(kind, parts)

    def put_on(self, device: str) -> None:
        """Run searches without a filter on a GPU, with copies of the parts; the parts themselves stay on the CPU."""
        self._gpus = gpus_of(device, "device")[:1]
        self._copies = copies_on_gpus(self.parts, self._gpus, "device") if self._gpus else []

    @property
    def width(self) -> int:
        """Length D of a vector."""
        return self.parts[0].d

    def add(self, vectors: np.ndarray, keys: np.ndarray) -> None:
        """Add each row to the part that its key determines."""
        self._copies = []
        for number, part in enumerate(self.parts):
            in_shard = keys % len(self.parts) == number
            if in_shard.any():
                part.add_with_ids(vectors[in_shard], keys[in_shard])

    def remove(self, keys: np.ndarray) -> None:
        """Delete images with their vectors. A graph (``hnsw``) is built again from the others, which is slow."""
        self._copies = []
        for number, part in enumerate(self.parts):
            doomed = keys[keys % len(self.parts) == number]
            if not len(doomed):
                continue
            if self.kind == "hnsw":
                stored, own = import_faiss().downcast_index(part.index), keys_in(part, self.kind)
                stay = ~np.isin(own, doomed)
                self.parts[number] = _with_keys(new_index("hnsw", np.empty((0, part.d), np.float32)), "hnsw")
                if stay.any():
                    self.parts[number].add_with_ids(stored.reconstruct_n(0, stored.ntotal)[stay], own[stay])
            else:
                part.remove_ids(doomed)

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Return the vectors ``(N, D)`` float32 of existing images.

        Raises:
            InputError: the index is of the kind ``ivfpq``, which contains codes instead of vectors.
        """
        if self.kind == "ivfpq":
            raise InputError("an ivfpq gallery contains codes instead of features; build the new one from the images")
        vectors = np.empty((len(keys), self.width), dtype=np.float32)
        for number, part in enumerate(self.parts):
            in_shard = keys % len(self.parts) == number
            rows = np.searchsorted(keys_in(part, self.kind), keys[in_shard])
            vectors[in_shard] = import_faiss().downcast_index(part.index).reconstruct_batch(rows)
        return vectors

    def search(self, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Hits:
        """Return scores and keys of the best ``k`` images for queries ``(Q, D)``.

        Args:
            allowed: ``(max key + 1,)`` bool, True for allowed keys; ``None`` allows all.
        """
        parts = self.parts
        if self._gpus and allowed is None and k <= MOST_ON_GPU:  # on a GPU, faiss ignores selectors
            self._copies = self._copies or copies_on_gpus(self.parts, self._gpus, "device")
            parts = self._copies

        def search(number: int) -> Hits:
            if allowed is None:
                return parts[number].search(vectors, k)
            return _search_filtered(parts[number], self.kind, vectors, k, allowed, allowed[number :: len(parts)].sum())

        if len(parts) == 1:
            return search(0)
        with ThreadPoolExecutor(len(parts)) as pool:  # faiss releases the interpreter lock
            scores, keys = zip(*pool.map(search, range(len(parts))), strict=True)
        return best_of(np.concatenate(scores, axis=1), np.concatenate(keys, axis=1), k)

    def recall(self, vectors: np.ndarray, depths: tuple[int, ...] = (1, 10)) -> dict[int, float]:
        """Measure the share of the true nearest neighbours that the index returns.

        Up to 256 images, evenly spaced in the gallery, are the queries; an image does not count as its own neighbour.

        Args:
            vectors: ``(N, D)`` float32 of unit length, from which the index was built.
            depths: values of k.

        Returns:
            ``{k: recall@k}``, in [0, 1], without values of k for which there are too few images.
        """
        shares: dict[int, list[float]] = {k: [] for k in depths if k < len(vectors)}
        if not shares:
            return {}
        faiss, most = import_faiss(), max(shares) + 1
        sample = np.unique(np.linspace(0, len(vectors) - 1, 256).astype(int))
        _, truth = faiss.knn(vectors[sample], vectors, most, metric=faiss.METRIC_INNER_PRODUCT)
        _, neighbours = self.search(vectors[sample], most)
        for image, *both in zip(sample, truth, neighbours, strict=True):
            true, returned = (keys[(keys != image) & (keys >= 0)].tolist() for keys in both)
            for k, of_image in shares.items():
                of_image.append(len({*true[:k]} & {*returned[:k]}) / k)
        return {k: float(np.mean(of_image)) for k, of_image in shares.items()}


def _with_keys(index: Any, kind: str) -> Any:
    """Let an index map its rows to keys; inverted lists do so anyway."""
    return index if kind == "ivfpq" else import_faiss().IndexIDMap(index)


def _search_filtered(index: Any, kind: str, vectors: np.ndarray, k: int, allowed: np.ndarray, count: int) -> Hits:
    """Search one index with a filter that allows ``count`` of its images.

    Graphs and lists first find the nearest images and then apply the filter, so a stricter filter needs a wider search.
    If a query gets too few results although more images are allowed, it is compared with all allowed images.
    """
    faiss = import_faiss()
    selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    if kind == "flat":
        return index.search(vectors, k, params=faiss.SearchParameters(sel=selector))
    share = max(count, 1) / max(index.ntotal, 1)
    if kind == "hnsw":
        if count * share <= EXACT_UP_TO:
            return _compared_with_all(index, vectors, k, allowed)
        wider = int(faiss.downcast_index(index.index).hnsw.efSearch / share)
        parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=wider)
    else:
        parameters = faiss.SearchParametersIVF(sel=selector, nprobe=min(index.nlist, int(index.nprobe / share)))
    scores, keys = index.search(vectors, k, params=parameters)
    short = (keys >= 0).sum(1) < min(k, count)
    if short.any() and kind == "hnsw":
        scores[short], keys[short] = _compared_with_all(index, vectors[short], k, allowed)
    elif short.any():
        every_list = faiss.SearchParametersIVF(sel=selector, nprobe=index.nlist)
        scores[short], keys[short] = index.search(vectors[short], k, params=every_list)
    return scores, keys


def _compared_with_all(index: Any, vectors: np.ndarray, k: int, allowed: np.ndarray) -> Hits:
    """Search a graph by comparing each query with all allowed images."""
    faiss = import_faiss()
    keys = keys_in(index, "hnsw")
    selector = faiss.IDSelectorBitmap(np.packbits(allowed[keys], bitorder="little"))
    stored = faiss.downcast_index(faiss.downcast_index(index.index).storage)
    scores, rows = stored.search(vectors, k, params=faiss.SearchParameters(sel=selector))
    return scores, np.where(rows >= 0, keys[rows], -1) if len(keys) else rows


def keys_in(index: Any, kind: str) -> np.ndarray:
    """Return the keys ``(N,)`` int64 of all images in one part, ascending."""
    faiss = import_faiss()
    if kind != "ivfpq":
        return faiss.vector_to_array(index.id_map)
    lists = index.invlists
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    parts = [faiss.rev_swig_ptr(lists.get_ids(number), size) for number, size in enumerate(sizes) if size]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def require_kind(index: Any, kind: str) -> None:
    """Raise ValueError if a part that was read from a file is not of this kind or does not score by dot product."""
    faiss = import_faiss()
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
    wanted = {"flat": faiss.IndexFlat, "hnsw": faiss.IndexHNSWFlat, "ivfpq": faiss.IndexIVFPQ}[kind]
    if not isinstance(inner, wanted) or (kind == "ivfpq") != (inner is index):
        raise ValueError(f"it is {type(inner).__name__}, not {wanted.__name__}")
    if index.metric_type != faiss.METRIC_INNER_PRODUCT or inner.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ValueError("it does not score by inner product")
    if (index.d, index.ntotal) != (inner.d, inner.ntotal):
        raise ValueError("it has different numbers of keys and vectors")
