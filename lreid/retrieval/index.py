"""Search a gallery with a faiss index instead of comparing all images, and measure what this costs.

Metrics are computed from the scores of an index in the same way as from exact scores, see
:class:`lreid.retrieval.scores.IndexScores`. The ``flat`` index is in :mod:`lreid.retrieval.flat`.
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
from lreid.retrieval.faiss_library import MOST_ON_GPU, copies_on_gpus, gpus_of, import_faiss, new_index, reason_of
from lreid.retrieval.flat import FlatSearch
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
        float16: whether GPUs get the vectors in 16 bits. Scores then keep three digits.
    """

    index: str = "flat"
    depth: int = 1000
    device: str = "auto"
    float16: bool = False

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ArgumentError("depth", f"is {self.depth}; request at least one image")

    def over(self, gallery: Any, metric: Metric) -> FaissSearch | FlatSearch:
        """Build the index of a gallery, with the arguments of :func:`lreid.retrieval.evaluate`."""
        if self.index not in ("flat", "Flat"):
            return FaissSearch(self, gallery, metric)
        return FlatSearch(gallery, metric, self.depth, self.gpus(), self.float16, self.device == "auto")

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
            fault = f"is {self.index!r}, to which images cannot be added: {reason_of(error)}"
            raise ArgumentError("index", fault) from None

    def gpus(self) -> list[int]:
        """Numbers of the GPUs that search; an empty list means the CPU."""
        gpus = gpus_of(self.device, "index_device")
        if gpus and self.index != "flat" and self.depth > MOST_ON_GPU:
            if self.device != "auto":
                fault = f"is {self.depth}, but a GPU finds {MOST_ON_GPU} images at most; lower it, or search on cpu"
                raise ArgumentError("depth", fault)
            gpus = []
        if self.float16 and not gpus:
            fault = "is True, but faiss searches on the CPU, which stores 32 bits; set it to False"
            raise ArgumentError("index_float16", fault)
        return gpus


class FaissSearch:
    """A gallery as a faiss index that returns the nearest images.

    Args:
        metric: see :func:`lreid.retrieval.evaluate`.

    Attributes:
        index: the faiss index.
        seconds: time in seconds to build the index.

    Raises:
        InputError: features are not finite, or the index cannot be built from them.
    """

    complete = False

    def __init__(self, kind: FaissIndex, gallery: Any, metric: Metric) -> None:
        self.euclidean, gpus = metric != "cosine", kind.gpus()
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
        self.max_results = min(kind.depth, self.index.ntotal)
        self.searched = self.index  # or its copy on GPUs
        try:
            if gpus:
                [self.searched] = copies_on_gpus([self.index], gpus, "index_device", float16=kind.float16)
        except ArgumentError:  # faiss has no graphs on GPUs, and only some lengths of codes
            if kind.device != "auto" or kind.float16:
                raise
        self.seconds = time.perf_counter() - start

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Search`."""
        vectors, size = self._vectors(queries)
        scores, rows = map(torch.from_numpy, self.searched.search(vectors, self.max_results))  # (B, k)
        return (size - scores.double() * self.scale**2) / 2 if self.euclidean else scores * size, rows

    def nearest(self, queries: Tensor) -> np.ndarray:
        """Return the rows ``(B, k)`` of the ``depth`` nearest gallery images, nearest first; -1 for missing results."""
        return self.searched.search(self._vectors(queries)[0], self.max_results)[1]

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
