"""Kinds of faiss indexes for a gallery. An index contains unit vectors, whose dot products are cosine similarities.

========  ==============================================  =========================  ==================
kind      how it searches                                 bytes per image            good for
========  ==============================================  =========================  ==================
flat      compares with every image: exact                4 D                        up to about 10^6
hnsw      follows a graph of neighbours                   4 D + 264                  10^6 with enough memory
ivfpq     searches the nearest of many lists of codes     D / 4 + 8                  10^6 and far beyond
========  ==============================================  =========================  ==================

An index may consist of several parts, which are searched in parallel (:class:`Shards`). Parts and selectors use the
keys of the whole gallery. lreid does not use ``IndexShards`` of faiss, because it returns images that a selector
forbids (faiss issue 5581). With ``successive_ids``, ``IndexShards`` numbers the images of each part from 0, but does
not adapt the selector to these numbers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.retrieval.faiss_module import KINDS, MOST_ON_GPU, copies_on_gpu, import_faiss, require_gpu
from lreid.retrieval.faiss_module import new_index as empty_index

FEW = 4096  # up to this (number of allowed images) x (share of allowed images), exact search takes no longer


def new_index(kind: str, vectors: np.ndarray, keys: np.ndarray | None = None) -> Any:
    """Create an index of ``vectors``.

    Args:
        kind: ``flat``, ``hnsw`` or ``ivfpq``, see :func:`lreid.retrieval.index.new_index`.
        vectors: ``(N, D)`` float32 of unit length.
        keys: ``(N,)`` int64 keys of the images; ``None`` means 0, 1, …
    """
    if kind not in KINDS:
        raise ArgumentError("kind", f"is {kind!r}; use flat, hnsw or ivfpq")
    index = empty_index(kind, vectors)
    if kind != "ivfpq":  # inverted lists store keys themselves
        index = import_faiss().IndexIDMap(index)
    index.add_with_ids(vectors, np.arange(len(vectors)) if keys is None else keys)
    return index


def without(index: Any, kind: str, keys: np.ndarray, drop: np.ndarray) -> Any:
    """Delete images with their vectors from an index, and return the index.

    Args:
        index: index made by :func:`new_index`. If the kind of index supports deletion, the index is changed in place.
        kind: kind of the index. A graph (``hnsw``) does not support deletion, so it is built again from the remaining
            vectors, which is slow.
        keys: ``(N,)`` keys of all images, ascending.
        drop: ``(N,)`` bool, True for the images to delete.
    """
    if kind == "hnsw":
        faiss = import_faiss()
        stored = faiss.downcast_index(index.index)
        graph = faiss.IndexIDMap(empty_index(kind, np.empty((0, index.d), np.float32)))
        if not drop.all():
            graph.add_with_ids(stored.reconstruct_n(0, stored.ntotal)[~drop], keys[~drop])
        return graph
    index.remove_ids(keys[drop])
    return index


def gpu_copy(index: Any, kind: str, gpu: int) -> Any:
    """Copy an index to the memory of a GPU, with the same keys.

    faiss has limits on GPUs: ``GpuIndexFlat.cu`` and ``GpuIndexIVF.cu`` ignore the selector of a search, and
    ``GpuIndex.cu`` returns at most 2048 images. Graph indexes cannot be copied to a GPU.

    Raises:
        ArgumentError: the GPU does not exist, faiss does not support it, or the index cannot be copied to a GPU. The
            message names the argument ``device``.
    """
    require_gpu(gpu, "device")
    if kind == "hnsw":
        raise ArgumentError(
            "device", "is a GPU, but a graph can only be searched on the CPU; use cpu, or a flat gallery"
        )
    return copies_on_gpu([index], [gpu], "device")[0]


def require_kind(index: Any, kind: str) -> None:
    """Refuse an index that is not of this kind or does not score by dot product.

    Raises:
        ValueError: the index was not made by :func:`new_index`.
    """
    faiss = import_faiss()
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
    wanted = {"flat": faiss.IndexFlatIP, "hnsw": faiss.IndexHNSWFlat, "ivfpq": faiss.IndexIVFPQ}[kind]
    if type(inner) is not wanted or (kind == "ivfpq") != (inner is index):
        raise ValueError(f"it is {type(inner).__name__}, not {wanted.__name__}")
    if index.metric_type != faiss.METRIC_INNER_PRODUCT or inner.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ValueError("it does not score by inner product")
    if (index.d, index.ntotal) != (inner.d, inner.ntotal):
        raise ValueError("it has different numbers of keys and vectors")


def keys_in(index: Any, kind: str) -> np.ndarray:
    """Return the keys ``(N,)`` int64 of all images by row, or in ascending order for ``ivfpq``, which has no rows."""
    faiss = import_faiss()
    if kind != "ivfpq":
        return faiss.vector_to_array(index.id_map)
    lists = index.invlists
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    parts = [faiss.rev_swig_ptr(lists.get_ids(number), size) for number, size in enumerate(sizes) if size]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def stored_vectors(index: Any, kind: str, rows: np.ndarray) -> np.ndarray:
    """Return vectors ``(N, D)`` float32 of an index by row.

    Raises:
        InputError: the index is of the kind ``ivfpq``, which contains codes instead of vectors.
    """
    if kind == "ivfpq":
        raise InputError("an ivfpq gallery contains codes instead of features; build the new one from the images")
    stored = import_faiss().downcast_index(index.index)
    return stored.reconstruct_batch(np.ascontiguousarray(rows))


def nearest(
    index: Any, kind: str, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None, count: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and keys of the best ``k`` images, each ``(Q, k)``; missing results have the key -1.

    Graphs and lists first find the nearest images and then apply the filter, so a stricter filter needs a wider search.
    If a query gets too few results although more images are allowed, it is compared with all allowed images.

    Args:
        allowed: ``(max key + 1,)`` bool, True for allowed keys; ``None`` allows all.
        count: number of images in this index that are allowed.
    """
    if allowed is None:
        return index.search(vectors, k)
    faiss = import_faiss()
    selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
    if kind == "flat":
        return index.search(vectors, k, params=faiss.SearchParameters(sel=selector))
    share = max(count, 1) / max(index.ntotal, 1)
    if kind == "hnsw":
        graph = faiss.downcast_index(index.index)
        if count * share <= FEW:
            return _compared_with_all(index, vectors, k, allowed)
        parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=int(graph.hnsw.efSearch / share))
    else:
        lists = min(index.nlist, int(index.nprobe / share))
        parameters = faiss.SearchParametersIVF(sel=selector, nprobe=lists)
    scores, keys = index.search(vectors, k, params=parameters)
    short = (keys >= 0).sum(1) < min(k, count)
    if short.any() and kind == "hnsw":
        scores[short], keys[short] = _compared_with_all(index, vectors[short], k, allowed)
    elif short.any():
        parameters = faiss.SearchParametersIVF(sel=selector, nprobe=index.nlist)
        scores[short], keys[short] = index.search(vectors[short], k, params=parameters)
    return scores, keys


def _compared_with_all(index: Any, vectors: np.ndarray, k: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Search a graph index as in :func:`nearest`, but compare each query exactly with all allowed images."""
    faiss = import_faiss()
    keys = faiss.vector_to_array(index.id_map)  # (N,) key of each row
    selector = faiss.IDSelectorBitmap(np.packbits(allowed[keys], bitorder="little"))
    stored = faiss.downcast_index(faiss.downcast_index(index.index).storage)
    scores, rows = stored.search(vectors, k, params=faiss.SearchParameters(sel=selector))
    return scores, np.where(rows >= 0, keys[rows], -1) if len(keys) else rows


def measure_recall(index: Any, vectors: np.ndarray, depths: tuple[int, ...] = (1, 10)) -> dict[int, float]:
    """Measure the recall of an index, the share of the true nearest neighbours that it returns.

    Up to 256 images, evenly spaced in the gallery, are the queries; an image does not count as its own neighbour.

    Args:
        index: index that was built from ``vectors``.
        vectors: ``(N, D)`` float32 of unit length.
        depths: values of k.

    Returns:
        ``{k: recall@k}``, in [0, 1]; empty if there are too few images.
    """
    depths = tuple(k for k in depths if k < len(vectors))
    if not depths:
        return {}
    faiss = import_faiss()
    sample = np.unique(np.linspace(0, len(vectors) - 1, 256).astype(int))
    most = max(depths) + 1
    _, truth = faiss.knn(vectors[sample], vectors, most, metric=faiss.METRIC_INNER_PRODUCT)
    _, keys_of_index = index.search(vectors[sample], most)

    def neighbours(keys: np.ndarray, itself: int, k: int) -> set[int]:
        return set(keys[(keys != itself) & (keys >= 0)][:k].tolist())

    return {
        k: float(
            np.mean(
                [
                    len(neighbours(true, itself, k) & neighbours(given, itself, k)) / k
                    for true, given, itself in zip(truth, keys_of_index, sample, strict=True)
                ]
            )
        )
        for k in depths
    }


class Shards:
    """A faiss index in one or several parts (shards). The image with key ``n`` is in the part ``n % len(parts)``."""

    def __init__(self, kind: str, parts: list[Any]):
        self.kind = kind
        self.parts = parts
        self.gpu: int | None = None  # number of the GPU that searches; None for the CPU
        self.copies: list[Any] = []  # copies of the parts on the GPU, each None until it is needed

    def put_on(self, gpu: int) -> None:
        """Run searches without a filter on a GPU, with copies of the parts; the parts themselves stay on the CPU.

        Raises:
            InputError: see :func:`lreid.gallery.faiss.index.gpu_copy`.
        """
        self.gpu = gpu
        self.copies = [gpu_copy(part, self.kind, gpu) for part in self.parts]

    @classmethod
    def build(cls, kind: str, vectors: np.ndarray, keys: np.ndarray, count: int) -> Shards:
        """Build an index of ``(N, D)`` float32 rows of unit length.

        Raises:
            InputError: ``count`` is below 1, the kind is unknown, or a part has too few images for this kind.
        """
        if count < 1:
            raise ArgumentError("shards", f"is {count}; a gallery has at least one shard")
        if count == 1:
            return cls(kind, [new_index(kind, vectors, keys)])
        members = [keys % count == part for part in range(count)]
        return cls(kind, [new_index(kind, vectors[rows], keys[rows]) for rows in members])

    @property
    def d(self) -> int:
        """Length D of a vector; faiss indexes use the same name."""
        return self.parts[0].d

    @property
    def ntotal(self) -> int:
        """Number of images in all parts; faiss indexes use the same name."""
        return sum(part.ntotal for part in self.parts)

    def add(self, vectors: np.ndarray, keys: np.ndarray) -> None:
        """Add each row to the part that its key determines."""
        self.copies = []
        for number, part in enumerate(self.parts):
            in_shard = keys % len(self.parts) == number
            if in_shard.any():
                part.add_with_ids(vectors[in_shard], keys[in_shard])

    def remove(self, keys: np.ndarray, drop: np.ndarray) -> None:
        """Delete images: ``keys`` ``(N,)`` are all keys, ascending; ``drop`` ``(N,)`` is True for images to delete."""
        self.copies = []
        for number, part in enumerate(self.parts):
            in_shard = keys % len(self.parts) == number
            if drop[in_shard].any():
                self.parts[number] = without(part, self.kind, keys[in_shard], drop[in_shard])

    def vectors(self, keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the rows ``(W, D)`` of the wanted keys; ``keys`` are all keys, ascending.

        Raises:
            InputError: this kind of index stores no features.
        """
        rows = np.empty((len(wanted), self.d), dtype=np.float32)
        for number, part in enumerate(self.parts):
            in_shard = wanted % len(self.parts) == number
            own = keys[keys % len(self.parts) == number]
            rows[in_shard] = stored_vectors(part, self.kind, np.searchsorted(own, wanted[in_shard]))
        return rows

    def search(self, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and keys of the best ``k`` images, see :func:`lreid.gallery.faiss.index.nearest`."""
        parts = self.parts
        if self.gpu is not None and allowed is None and k <= MOST_ON_GPU:  # on a GPU, faiss ignores selectors
            self.copies = self.copies or [gpu_copy(part, self.kind, self.gpu) for part in self.parts]
            parts = self.copies

        def search(number: int) -> tuple[np.ndarray, np.ndarray]:
            count = 0 if allowed is None else int(allowed[number :: len(self.parts)].sum())
            return nearest(parts[number], self.kind, vectors, k, allowed, count)

        if len(self.parts) == 1:
            return search(0)
        with ThreadPoolExecutor(len(self.parts)) as pool:  # faiss releases the interpreter lock
            results = list(pool.map(search, range(len(self.parts))))
        scores, keys = (np.concatenate(each, axis=1) for each in zip(*results, strict=True))  # (Q, parts * k)
        scores = np.where(keys >= 0, scores, -np.inf)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, best, 1), np.take_along_axis(keys, best, 1)
