"""The ``flat`` index: faiss compares every query with every gallery image, and its distances rank the gallery."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.retrieval.arrays import as_features, cancels, repeated_rows, squared_norms, unit_rows
from lreid.retrieval.faiss_library import import_faiss, squared_distances
from lreid.retrieval.scores import Metric, blocks


class FlatSearch:
    """A gallery that faiss compares with queries by squared Euclidean distances; for cosine, those of unit vectors.

    Vectors and distances are float32. With unit roundoff u = 2^-24, the sum |q|² + |g|² - 2 q·g of vectors of D numbers
    is wrong by at most (D + 2) u (|q| + |g|)²: D u for each norm and for the product, and u for each of two sums
    (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Typical errors are far smaller, because most
    rounding errors cancel each other. The metrics equal the exact ones up to the order of images whose distances
    differ by less than this error. Equal rows have equal scores and keep the order of the gallery.

    If features are much nearer to each other than to zero, faiss squares their differences, and the error is at most
    (D + 2) u |q - g|².

    Args:
        gallery: ``(G, D)`` features.
        metric: see :func:`lreid.retrieval.evaluate`.
        depth: maximum number of images that :meth:`nearest` returns.
        gpus: numbers of the GPUs that divide the gallery among them; empty for the CPU.
        float16: whether GPUs get the vectors in 16 bits.
        fall_back: whether to use the CPU if a GPU has too little memory for float32 vectors.

    Attributes:
        max_results: number of images in the gallery.
        seconds: time in seconds to prepare the gallery.
        megabytes: size of the vectors in MiB.

    Raises:
        InputError: features are not finite.
    """

    complete = True

    def __init__(self, gallery: Any, metric: Metric, depth: int, gpus: list[int], float16: bool, fall_back: bool):
        features = as_features(gallery, "gallery features", "cpu")
        self.gpus = {gpu: import_faiss().StandardGpuResources() for gpu in gpus[: len(features)]}
        self.cosine, self.dtype = metric == "cosine", torch.float16 if float16 else torch.float32
        start = time.perf_counter()
        squared_norms(features, "gallery features")  # refuses values that are not finite
        self.scale = 2.0 ** math.frexp(float(features.abs().max()))[1]  # a power of two does not round
        vectors = self._vectors(features, "gallery features")
        self.offset = (1 + vectors.any(1).float()) / 2 if self.cosine else torch.zeros(())  # 1/2: zero vectors
        self.repeats, self.originals = repeated_rows(vectors)
        self.options = {"fall_back": fall_back, "subtract": not (self.cosine or float16) and cancels(features)}
        self.vectors = vectors.numpy()  # (G, D)
        self.max_results, self.depth = len(vectors), min(depth, len(vectors))
        self.megabytes = vectors.nbytes / 2**20
        self.seconds = time.perf_counter() - start

    def __call__(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`lreid.retrieval.scores.Search`; scores are cosine similarities or -distance / 2."""
        vectors = self._vectors(queries.cpu(), "query features")  # (B, D)
        distances = squared_distances(vectors.numpy(), self.vectors, self.gpus, **self.options)
        scores = torch.from_numpy(distances).to(queries.device)  # (B, G)
        torch.add(self.offset.to(scores.device), scores, alpha=-0.5, out=scores)
        scores[~queries.any(1) & self.cosine] = 0  # a zero vector has cosine similarity 0 to every vector
        scores[:, self.repeats] = scores[:, self.originals]
        return scores, torch.arange(self.max_results).expand(len(scores), -1)

    def nearest(self, queries: Tensor) -> np.ndarray:
        """Return the rows ``(B, k)`` of the ``depth`` nearest gallery images, nearest first."""
        parts = [self(queries[here])[0].topk(self.depth).indices for here in blocks(len(queries), self.max_results)]
        return torch.cat(parts).cpu().numpy()

    def _vectors(self, features: Tensor, name: str) -> Tensor:
        """Convert features ``(N, D)`` to the vectors that faiss compares."""
        if self.cosine:
            vectors = unit_rows(features, name)
        else:
            vectors = features / self.scale
            squared_norms(vectors.float(), name)  # refuses values that are far larger than the gallery's
        return vectors.to(self.dtype).contiguous()
