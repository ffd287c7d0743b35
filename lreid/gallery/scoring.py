"""Score queries by searching a gallery, so that ``lreid test`` can measure an existing gallery."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.gallery.faiss_store import FaissStore
from lreid.gallery.gallery import Gallery
from lreid.gallery.store import EVERYTHING
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.scores import Metric


class GallerySearch:
    """Let an evaluation search an existing gallery by cosine similarity, instead of building an index.

    An object of this class can replace a :class:`lreid.retrieval.FaissIndex` and the search that a FaissIndex builds.

    Args:
        gallery: gallery in faiss or Milvus.
        depth: number of images returned per query; a ``flat`` gallery in a file returns all images.

    Attributes:
        index: kind of index of the gallery.
        labels: labels of all images as numbers; a search returns row numbers of ``labels``.
        seconds, megabytes: None, because the size of the gallery's index and the time to build it are unknown.
    """

    complete = False  # even a flat gallery returns its images sorted
    seconds = None
    megabytes = None

    def __init__(self, gallery: Gallery, depth: int) -> None:
        self.gallery, self.labels = gallery, gallery.store.labels()
        self.index, self.depth = gallery.about.kind, depth
        everything = self.index == "flat" and isinstance(gallery.store, FaissStore)
        self.max_results = len(self.labels) if everything else min(depth, len(self.labels))

    def over(self, gallery: Any, metric: Metric) -> GallerySearch:
        """Return this object, because the gallery already contains the features."""
        return self

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and rows ``(B, max_results)`` for queries ``(B, D)``; missing results have row -1."""
        scores, rows = self._search(queries, self.max_results)
        norms = queries.cpu().norm(dim=1, keepdim=True)
        return torch.from_numpy(scores) * norms, torch.from_numpy(rows)

    def nearest(self, queries: Tensor) -> np.ndarray:
        """Return the rows ``(B, depth)`` of the nearest images, nearest first."""
        return self._search(queries, min(self.depth, len(self.labels)))[1]

    def features(self) -> np.ndarray | None:
        """Return the unit vectors ``(N, D)``, or None if the gallery stores only compressed codes."""
        try:
            return self.gallery.features(self.labels.keys)
        except InputError:
            return None

    def _search(self, queries: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        vectors = unit_rows(queries.cpu(), "query features").float().numpy()
        scores, labels = self.gallery.store.nearest(vectors, k, EVERYTHING)
        valid = labels.keys >= 0
        rows = np.where(valid, np.searchsorted(self.labels.keys, labels.keys), -1)
        return np.where(valid, scores, 0).astype(np.float32), rows
