"""Load the faiss package, build its indexes, shorten its error messages and use its GPUs."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, raise_if_out_of_memory
from lreid.utils.extras import Extra

KINDS = ("flat", "hnsw", "ivfpq")
IVFPQ_LEAST = 39 * 256  # faiss asks for 39 training vectors for each of the 256 codes
MOST_ON_GPU = 2048  # maximum number of images that a GPU finds per query (GpuIndex.cu of faiss)
# faiss multiplies by BLAS if the queries have at least this many numbers together. The limit of faiss 1.15 is 128,000,
# which makes a search with 50 queries of 512 numbers ten times slower.
BLAS_FROM = 4096
TABLE_BYTES = 48 * 2**10  # shared memory of a GPU block, which holds the lookup tables of codes for one query


def import_faiss(extra: str = "cpu") -> Any:
    """Import the faiss module.

    Args:
        extra: the extra to install if faiss is missing, ``cpu`` or ``gpu``; both contain the same module.

    Raises:
        InputError: faiss is not installed.
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
        euclidean: whether scores are squared Euclidean distances.

    Raises:
        ArgumentError: faiss has no such index, or has too few vectors to train it.
    """
    faiss = import_faiss()
    count, width = vectors.shape
    metric = faiss.METRIC_L2 if euclidean else faiss.METRIC_INNER_PRODUCT
    if name == "flat":
        return faiss.IndexFlatL2(width) if euclidean else faiss.IndexFlatIP(width)
    if name == "hnsw":
        graph = faiss.IndexHNSWFlat(width, 32, metric)
        graph.hnsw.efConstruction, graph.hnsw.efSearch = 64, 128
        return graph
    if name == "ivfpq":
        if count < IVFPQ_LEAST:
            raise ArgumentError(
                "index", f"is 'ivfpq', but ivfpq needs {IVFPQ_LEAST} images or more for training, got {count}; use flat"
            )
        lists = min(int(4 * count**0.5), count // 39)
        codes = next(codes for codes in range(max(1, width // 4), 0, -1) if width % codes == 0)
        index = faiss.index_factory(width, f"IVF{lists},PQ{codes}np", metric)  # np: no polysemous training, see _parts
        for clustering in (index.cp, index.pq.cp):
            clustering.max_points_per_centroid = 64  # instead of the default 256: takes a quarter of the time
        index.train(vectors)
        index.nprobe = 32
        return index
    factory, _, parameters = name.partition(";")
    try:
        index = faiss.index_factory(width, factory, metric)
        for part in _parts(index):
            if hasattr(part, "do_polysemous_training"):
                part.do_polysemous_training = False
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


def _parts(index: Any) -> Iterator[Any]:
    """Iterate over an index and the indexes inside it, to turn off the polysemous training of each.

    Polysemous training sorts the codes of a product quantiser for a rarely used filter and always takes a minute.
    """
    yield index
    for name in ("index", "base_index", "storage"):
        if getattr(index, name, None) is not None:
            yield from _parts(import_faiss().downcast_index(getattr(index, name)))


def gpus_of(device: str) -> list[int]:
    """Return the numbers of the GPUs on which faiss will search.

    Args:
        device: ``cpu`` for no GPU, ``cuda`` for all GPUs that faiss sees, ``cuda:1`` for GPU 1, or ``auto`` for torch's
            current GPU if faiss sees it, and otherwise no GPU.

    Returns:
        Numbers of the GPUs; an empty list means the CPU.

    Raises:
        ArgumentError: ``device`` is invalid, or names a GPU that faiss does not see. The message names the argument
            ``index_device``.
    """
    count = import_faiss("gpu" if device.startswith("cuda") else "cpu").get_num_gpus()
    if device == "auto":
        import torch

        current = torch.cuda.current_device() if torch.cuda.is_available() else 0
        return [current] if current < count else []
    if device == "cpu":
        return []
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise ArgumentError("index_device", f"is {device!r}; use auto, cpu, cuda or cuda:1")
    if device == "cuda" and count:
        return list(range(count))
    gpu = int(device[5:] or 0)
    require_gpu(gpu, "index_device")
    return [gpu]


def require_gpu(gpu: int, argument: str) -> None:
    """Refuse a GPU that faiss does not see.

    Raises:
        ArgumentError: faiss does not see the GPU. The message names ``argument``.
    """
    count = import_faiss("gpu").get_num_gpus()
    if gpu >= count:
        fault = f"is GPU {gpu}, but faiss sees {count} GPUs" if count else "is a GPU, but faiss sees none"
        raise ArgumentError(argument, f"{fault}; install lreid[gpu] on a machine that has it, or use cpu")


def copies_on_gpu(indexes: list[Any], gpus: list[int], argument: str, *, float16: bool = False) -> list[Any]:
    """Copy indexes to the memory of GPUs; if there are more indexes than GPUs, a GPU gets several indexes.

    Args:
        argument: name of the argument that error messages refer to.
        float16: whether to store vectors and lookup tables in 16 bits, which halves the memory and keeps three digits.
            Float32 lookup tables that exceed a GPU's shared memory are stored in 16 bits in any case.

    Raises:
        ArgumentError: faiss does not support the index on GPUs, or a GPU has too little memory.
    """
    faiss = import_faiss()
    resources = {gpu: faiss.StandardGpuResources() for gpu in gpus}  # one per GPU, because each reserves up to 1.5 GB
    options = faiss.GpuClonerOptions()
    options.useFloat16 = float16 or any(map(_has_large_tables, indexes))
    try:
        return [
            faiss.index_cpu_to_gpu(resources[gpu], gpu, index, options)
            for number, index in enumerate(indexes)
            for gpu in [gpus[number % len(gpus)]]
        ]
    except RuntimeError as error:  # GPUs do not support this length of codes, or have too little memory
        raise ArgumentError(argument, f"is a GPU, to which faiss cannot copy the index: {reason_of(error)}") from None


def _has_large_tables(index: Any) -> bool:
    """Whether the float32 lookup tables of an index are larger than ``TABLE_BYTES``."""
    codes = getattr(index, "pq", None)
    return codes is not None and 4 * codes.M * codes.ksub > TABLE_BYTES


def sharded_on_gpus(index: Any, gpus: list[int], argument: str, *, float16: bool = False) -> Any:
    """Copy an index to several GPUs, each with a part of the images, with the arguments of :func:`copies_on_gpu`.

    Raises:
        ArgumentError: faiss does not support the index on GPUs, or a GPU has too little memory.
    """
    faiss = import_faiss()
    options = faiss.GpuMultipleClonerOptions()
    options.shard, options.useFloat16 = True, float16 or _has_large_tables(index)
    try:
        resources = [faiss.StandardGpuResources() for _ in gpus]
        return faiss.index_cpu_to_gpu_multiple_py(resources, index, options, gpus)
    except RuntimeError as error:
        raise ArgumentError(argument, f"is a GPU, to which faiss cannot copy the index: {reason_of(error)}") from None
