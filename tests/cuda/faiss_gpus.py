"""Some GPUs of faiss on a machine without one: indexes that take and find what faiss's GPU indexes do."""

from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np

MOST = 2048  # images that a GPU finds for a query
CODES = {1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96}  # of an image, as GpuIndexIVFPQ.cu has them
SHARED = 48 * 2**10  # bytes of tables that a block of threads holds, as on an H200


class OnGpu:
    """A copy of an index that counts its searches. It neither filters nor searches by radius."""

    searches = 0

    def __init__(self, index: Any, *, float16: bool = False) -> None:
        codes = getattr(index, "pq", None)
        if codes is not None:
            table = codes.M * codes.ksub * (2 if float16 else 4)
            if codes.nbits != 8 or codes.M not in CODES or table > SHARED:
                raise RuntimeError(f"Error in copy at GpuIndexIVFPQ.cu:1: Error: 'ok' failed: no {codes.M} x {table}")
        self.index, self.ntotal = faiss.clone_index(index), index.ntotal
        if float16 and isinstance(index, faiss.IndexFlat):
            vectors = index.reconstruct_n(0, index.ntotal).astype(np.float16).astype(np.float32)
            self.index.reset()
            self.index.add(vectors)

    def search(self, queries: np.ndarray, k: int) -> Any:
        assert k <= MOST
        OnGpu.searches += 1
        return self.index.search(queries, k)


def pretend_gpus(patch: Any, count: int) -> list[int]:
    """Lets faiss see some GPUs while ``patch`` lasts.

    Args:
        patch: pytest's ``monkeypatch``.
        count: of the GPUs.

    Returns:
        The number of the GPU of every copy that is made.
    """
    copied: list[int] = []

    def copy(resources: Any, gpu: int, index: Any, options: Any) -> OnGpu:
        made = OnGpu(index, float16=options.useFloat16)
        copied.append(gpu)
        return made

    def share(resources: Any, index: Any, options: Any, gpus: list[int]) -> OnGpu:
        assert options.shard and len(resources) == len(gpus)
        copied.extend(gpus)
        return OnGpu(index, float16=options.useFloat16)

    made: dict[str, Any] = {
        "StandardGpuResources": object,
        "GpuClonerOptions": SimpleNamespace,
        "GpuMultipleClonerOptions": SimpleNamespace,
        "index_cpu_to_gpu": copy,
        "index_cpu_to_gpu_multiple_py": share,
    }
    patch.setattr(OnGpu, "searches", 0)
    patch.setattr(faiss, "get_num_gpus", lambda: count)
    for name, value in made.items():
        patch.setattr(faiss, name, value, raising=False)
    return copied
