"""How near every gallery image is to a block of queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lreid.retrieval.arrays import inverse_norms, squared_norms

Metric = Literal["cosine", "euclidean", "sqeuclidean"]


class Scorer:
    """Scores of queries against one gallery: the higher, the nearer. Equal gallery rows score equal.

    Args:
        gallery: ``(G, D)`` features.
        metric: see :func:`lreid.retrieval.evaluate`.
        block: the most queries a call brings.
    """

    def __init__(self, gallery: Tensor, metric: Metric, block: int):
        self.gallery, self.metric = gallery, metric
        self.buffer = gallery.new_empty(block, len(gallery))
        squares = squared_norms(gallery, "gallery features")
        # For a query q, cosine ranks like q·g / |g| and the distance like q·g - |g|² / 2.
        self.term = inverse_norms(squares) if metric == "cosine" else squares / 2  # (G,)
        self.repeats, self.originals = _repeated_rows(gallery)

    def __call__(self, queries: Tensor) -> Tensor:
        """Scores of ``(B, D)`` queries. The next call overwrites them."""
        scores = torch.mm(queries, self.gallery.T, out=self.buffer[: len(queries)])  # (B, G)
        scores = scores.mul_(self.term) if self.metric == "cosine" else scores.sub_(self.term)
        if len(self.repeats):
            scores[:, self.repeats] = scores[:, self.originals]
        return scores


def _repeated_rows(features: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows equal to an earlier one, and the first row each of them equals."""
    rows = features.cpu().numpy()
    seen: dict[int, int] = {}
    pairs = []
    for index, row in enumerate(rows):
        first = seen.setdefault(hash(row.tobytes()), index)
        if first != index and np.array_equal(rows[first], row):
            pairs.append((index, first))
    repeats, originals = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return repeats, originals


@contextmanager
def full_precision() -> Iterator[None]:
    """Keeps matrix products from being rounded to TF32 or bfloat16, which would reorder rankings."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
