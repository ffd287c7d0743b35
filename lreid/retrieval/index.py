"""Search a gallery with a faiss index instead of comparing all images, and measure what this costs.

Metrics are computed from the scores of an index in the same way as from exact scores, see
:class:`lreid.retrieval.scores.IndexScores`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.errors import ArgumentError
from lreid.retrieval.arrays import as_features, squared_norms, unit_rows
from lreid.retrieval.faiss_library import (
    MOST_ON_GPU,
    best_of,
    copies_on_gpus,
    gpus_of,
    import_faiss,
    new_index,
    reason_of,
)
from lreid.retrieval.scores import ExactScores, Metric, Search, blocks

TIMED = 1000  # maximum number of queries for timing a search


@dataclass(frozen=True)
class FaissIndex:
    """Settings of a faiss index; :meth:`over` builds the index for a gallery.

    Attributes:
        index: see :func:`lreid.retrieval.faiss_library.new_index`.
        depth: number of images returned per query; a ``flat`` index returns all images.
        device: device on which faiss searches, see :func:`lreid.retrieval.faiss_library.gpus_of`. If there are several
            GPUs, each holds a part of the gallery. ``auto`` uses the CPU for graphs and for a depth above 2048, because
            faiss supports neither on GPUs.
        float16: whether to store vectors on the GPU in 16 bits. Scores then differ from the exact scores.
    """

    index: str = "flat"
    depth: int = 1000
    device: str = "auto"
    float16: bool = False

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ArgumentError("depth", f"is {self.depth}; request at least one image")

    def over(self, gallery: Any, metric: Metric) -> FaissSearch:
        """Build the index of a gallery, with the arguments of :func:`lreid.retrieval.evaluate`."""
        return FaissSearch(self, gallery, metric)

    def check(self, count: int, width: int) -> None:
        """Before features are extracted, check that an index can be built from features of shape ``(count, width)``.

        Raises:
            InputError: a setting is invalid, or faiss cannot build the index.
        """
        gpus = self.gpus()
        if self.index == "flat":  # can be built from any features
            return
        random = np.random.default_rng(0).standard_normal((count, width), dtype=np.float32)
        index = new_index(self.index, random)
        if gpus and (self.device != "auto" or self.float16):
            copies_on_gpus([index], gpus[:1], "index_device", float16=self.float16)
        try:
            index.add(random[:1])
        except RuntimeError as error:
            raise ArgumentError(
                "index", f"is {self.index!r}, to which images cannot be added: {reason_of(error)}"
            ) from None

    def gpus(self) -> list[int]:
        """Numbers of the GPUs that search; an empty list means the CPU."""
        gpus = gpus_of(self.device, "index_device")
        if gpus and self.index != "flat" and self.depth > MOST_ON_GPU:
            if self.device != "auto":
                raise ArgumentError(
                    "depth",
                    f"is {self.depth}, but a GPU finds {MOST_ON_GPU} images at most; lower it, or search on cpu",
                )
            gpus = []
        if self.float16 and not gpus:
            raise ArgumentError(
                "index_float16", "is True, but faiss searches on the CPU, which stores 32 bits; set it to False"
            )
        return gpus


class FaissSearch:
    """A gallery as a faiss index.

    Args:
        metric: see :func:`lreid.retrieval.evaluate`.

    Attributes:
        kind: kind of the index.
        index: the faiss index.
        seconds: time in seconds to build the index.

    Raises:
        InputError: features are not finite, or the index cannot be built from them.
    """

    def __init__(self, kind: FaissIndex, gallery: Any, metric: Metric) -> None:
        self.kind, self.euclidean = kind, metric != "cosine"
        gpus = kind.gpus()
        features = as_features(gallery, "gallery features", "cpu")
        self.scale = 1.0
        if self.euclidean:
            squared_norms(features, "gallery features")  # only to refuse values that are not finite
            self.scale = float(features.abs().max()) or 1.0  # squares in float32 neither vanish nor overflow
            features = features / self.scale
        else:
            features = unit_rows(features, "gallery features")
        vectors = features.float().numpy()  # (G, D)
        start = time.perf_counter()
        with _one_thread() if "hnsw" in kind.index.lower() else nullcontext():
            self.index = new_index(kind.index, vectors, euclidean=self.euclidean)
            self.index.add(vectors)
        self.exhaustive = isinstance(self.index, import_faiss().IndexFlat)
        self.copies: list[tuple[int, Any]] = self._on_gpus(vectors, gpus)  # first gallery row and index of each copy
        self.seconds = time.perf_counter() - start

    def _on_gpus(self, vectors: np.ndarray, gpus: list[int]) -> list[tuple[int, Any]]:
        """Copy the index to GPUs; an empty list means the CPU."""
        if not gpus:
            return []
        pieces = [self.index]
        if self.exhaustive:  # in pieces, because a GPU returns a limited number of images
            pieces = [new_index("flat", vectors, euclidean=self.euclidean) for _ in range(0, len(vectors), MOST_ON_GPU)]
            for number, piece in enumerate(pieces):
                piece.add(vectors[MOST_ON_GPU * number :][:MOST_ON_GPU])
        try:
            copies = copies_on_gpus(pieces, gpus, "index_device", float16=self.kind.float16)
        except ArgumentError:  # faiss has no graphs on GPUs, and only some lengths of codes
            if self.kind.device == "auto" and not self.kind.float16:
                return []
            raise
        return [(MOST_ON_GPU * number, copy) for number, copy in enumerate(copies)]

    @property
    def max_results(self) -> int:
        """Maximum number of results per query: ``depth``, or the size of the gallery for a ``flat`` index."""
        return self.index.ntotal if self.exhaustive else min(self.kind.depth, self.index.ntotal)

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """See :class:`Search`."""
        vectors, size = self._vectors(queries)
        rows: np.ndarray | None = None
        if self.exhaustive and not self.copies:  # sorting all images takes longer than scoring them
            _, scores, rows = self.index.range_search(vectors, np.inf if self.euclidean else -np.inf)
            scores, rows = (each.reshape(len(vectors), self.max_results) for each in (scores, rows))
            if (rows == np.arange(self.max_results)).all():
                rows = None
        else:
            scores, rows = self._search(vectors, self.max_results)
        values = torch.from_numpy(scores)
        values = (size - values.double() * self.scale**2) / 2 if self.euclidean else values * size
        return values, None if rows is None else torch.from_numpy(rows)

    def _search(self, vectors: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Search every piece of the gallery for up to ``depth`` images; return scores and rows ``(B, k)``."""
        parts = []
        for first, index in self.copies or [(0, self.index)]:
            scores, rows = index.search(vectors, min(depth, index.ntotal))
            parts.append((scores, np.where(rows < 0, rows, rows + first)))
        scores, rows = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return scores, rows

    def nearest(self, queries: Tensor) -> np.ndarray:
        """Return the rows ``(B, k)`` of the ``depth`` nearest gallery images, nearest first; -1 for missing results."""
        depth = min(self.kind.depth, self.index.ntotal)
        scores, rows = self._search(self._vectors(queries)[0], depth)
        return rows if rows.shape[1] == depth else best_of(scores, rows, depth, euclidean=self.euclidean)[1]

    @property
    def megabytes(self) -> float:
        """Size of the index in MiB, counted by serialising the index."""
        sizes: list[int] = []

        def count(data: bytes) -> int:
            sizes.append(len(data))
            return len(data)

        faiss = import_faiss()
        faiss.write_index(self.index, faiss.PyCallbackIOWriter(count, 2**20))
        return sum(sizes) / 2**20

    def _vectors(self, queries: Tensor) -> tuple[np.ndarray, Tensor]:
        """Return query vectors (B, D) float32 and their norms (B, 1), which are squared if the metric is a distance."""
        queries = queries.cpu()
        if self.euclidean:
            vectors = (queries / self.scale).float()
            squared_norms(vectors, "query features in units of the gallery's largest number")  # float32 of both
            return vectors.numpy(), queries.double().square().sum(1, keepdim=True)
        norms = queries.norm(dim=1, keepdim=True)
        return (queries / norms.where(norms > 0, 1)).float().numpy(), norms


@dataclass(frozen=True)
class IndexCost:
    """Speed, accuracy and size of an index.

    Attributes:
        queries_per_second: number of queries per second if all are searched as one batch on all CPU cores, for
            ``depth`` images each.
        recall: ``{k: recall@k}`` in [0, 1]: the share of the k nearest images that are among the first k results.
        megabytes: size of the index, or None if it is not known.
        build_seconds: time to build the index, or None if it is not known.
    """

    queries_per_second: float
    recall: dict[int, float]
    megabytes: float | None
    build_seconds: float | None


def cost_of(search: Search, exact: ExactScores, depths: tuple[int, ...] = (1, 10, 100)) -> IndexCost:
    """Measure an index on up to a thousand queries, evenly spaced among all queries.

    Args:
        exact: exact scores of all queries.
        depths: values of k for recall@k; values above the search's depth are left out.
    """
    num_queries, num_gallery = exact.shape
    sample = np.unique(np.linspace(0, num_queries - 1, min(num_queries, TIMED)).astype(int))
    queries = exact.queries[sample]
    start = time.perf_counter()
    nearest = torch.from_numpy(search.nearest(queries))  # (S, depth)
    seconds = time.perf_counter() - start
    depths = tuple(k for k in depths if k <= nearest.shape[1])
    hits = dict.fromkeys(depths, 0)
    for chunk in blocks(num_queries, num_gallery):
        inside = np.flatnonzero((sample >= chunk.start) & (sample < chunk.stop))
        if len(inside):
            scores = exact(chunk)[sample[inside] - chunk.start].cpu()  # (B, G)
            best = scores.topk(max(depths)).values
            rows = nearest[inside, : max(depths)]
            result_scores = scores.gather(1, rows.clamp(min=0)).masked_fill(rows < 0, -torch.inf)
            for k in depths:  # a tie with the k-th nearest image is a hit
                hits[k] += int((result_scores[:, :k] >= best[:, k - 1, None]).sum())
    recall = {k: count / (k * len(sample)) for k, count in hits.items()}
    return IndexCost(len(sample) / seconds, recall, search.megabytes, search.seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit faiss to one thread, because several threads build a different graph in every run."""
    faiss = import_faiss()
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
