"""The faiss library: create indexes, and copy them to GPUs. Evaluations and galleries search with the same indexes."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, raise_if_out_of_memory
from lreid.utils.extras import Extra

INDEX_KINDS = ("flat", "hnsw", "ivfpq")
IVFPQ_LEAST = 39 * 256  # faiss asks for 39 training vectors for each of the 256 codes
MOST_ON_GPU = 2048  # maximum number of images that a GPU returns per query (GpuIndex.cu of faiss)
# faiss multiplies by BLAS if the queries have at least this many numbers together. The limit of faiss 1.15 is 128,000,
# which makes a search with 50 queries of 512 numbers ten times slower.
BLAS_FROM = 4096
TABLE_BYTES = 48 * 2**10  # shared memory of a GPU block, which holds the lookup tables of codes for one query


def import_faiss(extra: str = "cpu") -> Any:
    """Import the faiss module.

    Args:
        extra: the extra to install if faiss is missing, ``cpu`` or ``gpu``; both contain the same module.
    """
    faiss = Extra("faiss", extra).load()
    if faiss.cvar.distance_compute_blas_threshold > BLAS_FROM:
        faiss.cvar.distance_compute_blas_threshold = BLAS_FROM
    return faiss


def reason_of(error: RuntimeError) -> str:
    """Return the message of a faiss error without the position in faiss's source code."""
    return str(error).split(" failed: ")[-1].split("cpp:", 1)[-1].split(": ", 1)[-1].strip().removesuffix(".")


def new_index(name: str, vectors: np.ndarray, *, euclidean: bool = False) -> Any:
    """Create an empty faiss index; an index that needs training is trained on the vectors.

    Args:
        name: kind of the index. ``flat``: exact search. ``hnsw`` (Malkov and Yashunin, 2018): a graph with 32 links per
            image. ``ivfpq`` (Jégou et al., 2011): about 4 sqrt(N) lists, of which a search reads 32, with one byte for
            every 4 numbers. Any other name is a string for faiss's ``index_factory``, followed by a semicolon and
            search parameters if needed, such as ``IVF256,Flat;nprobe=16``.
        vectors: ``(N, D)`` float32 vectors that the caller will add to the index.
        euclidean: whether scores are squared Euclidean distances; otherwise they are dot products.

    Raises:
        ArgumentError: faiss has no such index, or has too few vectors to train it.
    """
    faiss = import_faiss()
    count, width = vectors.shape
    factory, _, parameters = _recipe(name, count, width).partition(";")
    try:
        index = faiss.index_factory(width, factory, faiss.METRIC_L2 if euclidean else faiss.METRIC_INNER_PRODUCT)
        for part in _nested(index):
            if hasattr(part, "do_polysemous_training"):  # takes a minute, for a filter that is rarely used
                part.do_polysemous_training = False
        if name == "ivfpq":
            for clustering in (index.cp, index.pq.cp):
                clustering.max_points_per_centroid = 64  # instead of the default 256: takes a quarter of the time
        if parameters:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
        index.train(vectors)
    except RuntimeError as error:
        raise_if_out_of_memory(error, "index")
        raise ArgumentError(
            "index",
            f"is {name!r}, which faiss cannot build from {count} images x {width} numbers: {reason_of(error)}; "
            "use flat, hnsw, ivfpq or another string of faiss's index_factory",
        ) from None
    return index


def _recipe(name: str, count: int, width: int) -> str:
    """Return the ``index_factory`` string and the search parameters of a kind; other names are such strings."""
    if name == "flat":
        return "Flat"
    if name == "hnsw":
        return "HNSW32,Flat;efConstruction=64,efSearch=128"
    if name != "ivfpq":
        return name
    if count < IVFPQ_LEAST:
        raise ArgumentError("index", f"is 'ivfpq', which needs {IVFPQ_LEAST} images or more, got {count}; use flat")
    lists = min(int(4 * count**0.5), count // 39)
    codes = next(codes for codes in range(max(1, width // 4), 0, -1) if width % codes == 0)
    return f"IVF{lists},PQ{codes}np;nprobe=32"


def _nested(index: Any) -> Iterator[Any]:
    """Iterate over an index and the indexes inside it."""
    yield index
    for name in ("index", "base_index", "storage"):
        if getattr(index, name, None) is not None:
            yield from _nested(import_faiss().downcast_index(getattr(index, name)))


def squared_distances(
    queries: np.ndarray, gallery: np.ndarray, gpus: dict[int, Any], *, fall_back: bool, subtract: bool
) -> np.ndarray:
    """Compute the squared Euclidean distances of all pairs in float32.

    Args:
        queries: ``(Q, D)`` float32, or float16 on GPUs.
        gallery: ``(G, D)`` of the same dtype.
        gpus: number and ``StandardGpuResources`` of the GPUs, each of which compares a part of the gallery; empty for
            the CPU.
        fall_back: whether to use the CPU if a GPU has too little memory for float32 vectors.
        subtract: whether to square the differences of float32 vectors, always on the CPU. This takes about nine times
            as long as |q|² + |g|² - 2 q·g, but loses no digits.

    Returns:
        ``(Q, G)`` float32.

    Raises:
        ArgumentError: a GPU has too little memory.
    """
    faiss = import_faiss()
    if subtract:
        distances = np.empty((len(queries), len(gallery)), dtype=np.float32)
        q, g, out = map(faiss.swig_ptr, (queries, gallery, distances))
        faiss.pairwise_extra_distances(gallery.shape[1], len(queries), q, len(gallery), g, faiss.METRIC_L2, 0, out)
        return distances

    def compare(gpu: int, images: np.ndarray) -> np.ndarray:
        return faiss.pairwise_distance_gpu(gpus[gpu], queries, images, device=gpu)

    try:
        if gpus:
            with ThreadPoolExecutor(len(gpus)) as pool:
                return np.concatenate([*pool.map(compare, gpus, np.array_split(gallery, len(gpus)))], axis=1)
    except RuntimeError as error:
        if not fall_back or queries.dtype == np.float16:
            raise ArgumentError("index_device", f"is a GPU, where faiss fails: {reason_of(error)}; use cpu") from None
    return faiss.pairwise_distances(queries, gallery)


def best_of(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge results ``(Q, n)`` of several indexes into the best ``k``; missing results, with row -1, come last."""
    best = np.argsort(np.where(rows >= 0, -scores, np.inf), axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)


def gpus_of(device: str, argument: str) -> list[int]:
    """Return the numbers of the GPUs on which faiss will search; an empty list means the CPU.

    Args:
        device: ``cpu`` for no GPU, ``cuda`` for all GPUs that faiss sees, ``cuda:1`` for GPU 1, or ``auto`` for torch's
            current GPU if faiss sees it, and otherwise no GPU.
        argument: name of the argument in error messages.

    Raises:
        ArgumentError: ``device`` is invalid, or names a GPU that faiss does not see.
    """
    count = import_faiss("gpu" if device.startswith("cuda") else "cpu").get_num_gpus()
    if device == "auto":
        import torch

        current = torch.cuda.current_device() if torch.cuda.is_available() else 0
        return [current] if current < count else []
    if device == "cpu":
        return []
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise ArgumentError(argument, f"is {device!r}; use auto, cpu, cuda or cuda:1")
    if device == "cuda" and count:
        return list(range(count))
    gpu = int(device[5:] or 0)
    if gpu >= count:
        fault = f"is GPU {gpu}, but faiss sees {count} GPUs" if count else "is a GPU, but faiss sees none"
        raise ArgumentError(argument, f"{fault}; install lreid[gpu] on a machine that has it, or use cpu")
    return [gpu]


def copies_on_gpus(indexes: list[Any], gpus: list[int], argument: str, *, float16: bool = False) -> list[Any]:
    """Copy indexes to the memory of a GPU, or divide a single index among several GPUs.

    A GPU ignores the selector of a search (``GpuIndexFlat.cu``, ``GpuIndexIVF.cu``), and has no graphs.

    Args:
        argument: name of the argument in error messages.
        float16: whether to store vectors and lookup tables in 16 bits, which halves the memory and keeps three digits.
            Float32 lookup tables that exceed a GPU's shared memory are stored in 16 bits in any case.

    Raises:
        ArgumentError: faiss does not support the index on GPUs, or a GPU has too little memory.
    """
    faiss = import_faiss()
    supported = (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
    for index in indexes:
        inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
        if not isinstance(inner, supported):
            fault = f"is a GPU, but {type(inner).__name__} runs only on the CPU; use cpu, or a flat or ivfpq index"
            raise ArgumentError(argument, fault)
    options = faiss.GpuMultipleClonerOptions()
    options.shard, options.useFloat16 = True, float16 or any(map(_has_large_tables, indexes))
    resources = [faiss.StandardGpuResources() for _ in gpus]  # one per GPU, because each reserves up to 1.5 GB
    try:
        if len(gpus) > 1:
            return [faiss.index_cpu_to_gpu_multiple_py(resources, indexes[0], options, gpus)]
        return [faiss.index_cpu_to_gpu(resources[0], gpus[0], index, options) for index in indexes]
    except RuntimeError as error:  # GPUs do not support this length of codes, or have too little memory
        raise ArgumentError(argument, f"is a GPU, to which faiss cannot copy the index: {reason_of(error)}") from None


def _has_large_tables(index: Any) -> bool:
    """Whether the float32 lookup tables of an index are larger than ``TABLE_BYTES``."""
    codes = getattr(index, "pq", None)
    return codes is not None and 4 * codes.M * codes.ksub > TABLE_BYTES
