"""Simulated GPUs for faiss: indexes and distances that accept and return what those of faiss's GPUs do."""

from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np

MOST = 2048  # maximum number of images that a GPU returns per query
CODES = {1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96}  # codes per image, from GpuIndexIVFPQ.cu
SHARED = 48 * 2**10  # bytes of lookup tables that a block of threads holds, as on an H200


class OnGpu:
    """A copy of an index that counts its searches; it supports neither filters nor range searches."""

    searches = 0

    def __init__(self, index: Any, *, float16: bool = False) -> None:
        codes = getattr(index, "pq", None)
        if codes is not None:
            table = codes.M * codes.ksub * (2 if float16 else 4)
            if codes.nbits != 8 or codes.M not in CODES or table > SHARED:
                raise RuntimeError(f"Error in copy at GpuIndexIVFPQ.cu:1: Error: 'ok' failed: no {codes.M} x {table}")
        self.index, self.ntotal = faiss.clone_index(index), index.ntotal

    def search(self, queries: np.ndarray, k: int) -> Any:
        assert k <= MOST
        OnGpu.searches += 1
        return self.index.search(queries, k)


def simulate_gpus(patch: Any, count: int) -> list[int]:
    """Let faiss see ``count`` GPUs while ``patch`` lasts; return a list of the GPUs that get a copy or compare."""
    copied: list[int] = []

    def copy(resources: Any, gpu: int, index: Any, options: Any) -> OnGpu:
        made = OnGpu(index, float16=options.useFloat16)
        copied.append(gpu)
        return made

    def share(resources: Any, index: Any, options: Any, gpus: list[int]) -> OnGpu:
        assert options.shard and len(resources) == len(gpus)
        copied.extend(gpus)
        return OnGpu(index, float16=options.useFloat16)

    on_cpu = faiss.pairwise_distances

    def compare(resources: Any, queries: np.ndarray, gallery: np.ndarray, *, device: int) -> np.ndarray:
        assert queries.dtype == gallery.dtype and queries.flags.c_contiguous and gallery.flags.c_contiguous
        assert len(gallery)
        copied.append(device)
        return on_cpu(queries, gallery)

    made: dict[str, Any] = {
        "StandardGpuResources": object,
        "GpuMultipleClonerOptions": SimpleNamespace,
        "index_cpu_to_gpu": copy,
        "pairwise_distance_gpu": compare,
        "index_cpu_to_gpu_multiple_py": share,
    }
    patch.setattr(OnGpu, "searches", 0)
    patch.setattr(faiss, "get_num_gpus", lambda: count)
    for name, value in made.items():
        patch.setattr(faiss, name, value, raising=False)
    return copied
