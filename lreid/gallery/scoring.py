"""A gallery as a source of scores, so that its own search is scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.gallery.faiss.faiss_store import FaissStore
from lreid.gallery.filters import EVERYTHING
from lreid.gallery.gallery import Gallery
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.scores import Metric


class GallerySearch:
    """A gallery as the index that it is, and as the search of it, for cosine similarities.

    So it replaces a :class:`lreid.retrieval.FaissIndex` and of what that makes of features.

    Args:
        gallery: faiss or Milvus.
        depth: images that a query asks for; of a ``flat`` one in a file it gets all.

    Attributes:
        index: its kind.
        depth: as given.
        labels: labels of all images, in numbers; rows in scores are rows of these labels.
        seconds: None, nobody knows how long it took to make.
        megabytes: None.
    """

    seconds = None
    megabytes = None

    def __init__(self, gallery: Gallery, depth: int) -> None:
        self.gallery, self.labels = gallery, gallery.store.labels()
        self.index, self.depth = gallery.about.kind, depth
        everything = self.index == "flat" and isinstance(gallery.store, FaissStore)
        self.max_results = len(self.labels) if everything else min(depth, len(self.labels))

    def over(self, gallery: Any, metric: Metric) -> GallerySearch:
        """The gallery itself: it has its features already."""
        return self

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and rows ``(B, found)`` for ``(B, D)`` queries, row -1 where fewer were found."""
        scores, rows = self._search(queries, self.max_results)
        norms = queries.cpu().norm(dim=1, keepdim=True)
        return torch.from_numpy(scores) * norms, torch.from_numpy(rows)

    def nearest(self, queries: Tensor) -> np.ndarray:
        """Rows ``(B, depth)`` of the nearest images, nearest first."""
        return self._search(queries, min(self.depth, len(self.labels)))[1]

    def features(self) -> np.ndarray | None:
        """``(N, D)`` unit vectors; None where the gallery keeps codes."""
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
