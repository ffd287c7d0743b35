#!/usr/bin/env python
"""Times the exact evaluation beside its peers, or galleries of each kind of index, on random features.

python tools/bench_retrieval.py                                     Market-1501 and MSMT17 size
python tools/bench_retrieval.py --sizes msmt17 --contestants product evaluate torchreid     needs 20 GB
python tools/bench_retrieval.py --index --images 1000000            galleries, as a Markdown table

Features have clusters as those of a network do: an identity is a random point in 64 dimensions, an image another one
near it, and a random matrix takes both to the full width with a little noise. Every contestant works in a process
of its own, so that peaks of memory are its own, and contestants take turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lreid.apps.arguments.search import KINDS
from lreid.apps.cli import run_tool


class Size(NamedTuple):
    """A test set's size, the distances of its identities that make it hard and easy, and its memory target."""

    queries: int
    gallery: int
    width: int
    identities: int
    cameras: int
    separations: tuple[float, float]  # spread of identities over that of one's images: mAP 0.1, mAP 0.8
    megabytes: int  # that an evaluation may take above the features


SIZES = {
    "market1501": Size(3368, 19732, 2048, 750, 6, (0.59, 0.97), 400),
    "msmt17": Size(11659, 82161, 512, 3060, 15, (0.66, 1.06), 600),
}
CONTESTANTS = ("product", "evaluate", "flat", "hnsw", "argsort", "torchreid")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--sizes", nargs="+", choices=SIZES, default=["market1501", "msmt17"])
    top.add_argument(
        "--contestants",
        nargs="+",
        choices=CONTESTANTS,
        help="beside product and evaluate (default: all, but torchreid at MSMT17 size)",
    )
    top.add_argument("--repeats", type=int, default=3, help="turns of product, evaluate and flat; medians count")
    top.add_argument("--threads", type=int, help="default: as many as torch takes")
    top.add_argument("--index", action="store_true", help="galleries instead of evaluations")
    top.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    top.add_argument("--images", type=int, default=1_000_000, help="in each gallery")
    top.add_argument("--width", type=int, default=512, help="of the features in each gallery")
    top.add_argument("--queries", type=int, default=1000, help="looked up in each gallery")
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, since what follows takes seconds to load

import numpy as np
import torch
from tabulate import tabulate

from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.retrieval import FaissIndex, evaluate
from lreid.retrieval.index import import_faiss
from lreid.retrieval.scores import blocks

LATENT = 64  # dimensions that identities and images differ in


SMALL = Size(300, 2000, 128, 75, 6, (0.48, 0.98), 400)  # to warm up with
RATIO = 1.3  # target: times the bare product, on a processor with AVX-512
SPEEDUP = 20  # target: times faster than torchreid
THROUGH_FLAT = 1.3  # target: times evaluate, of the same figures through a flat index of faiss
OFTEN = ("product", "evaluate", "flat")  # take a turn each time


class Measured(NamedTuple):
    """One turn of a contestant.

    Attributes:
        seconds: that it took.
        processor: seconds of processors, which other processes of the machine hardly change.
        megabytes: highest memory of its process so far, above what it had with the features.
        figures: mAP and Rank-1; None where there are none.
    """

    seconds: float
    processor: float
    megabytes: float
    figures: Any  # of two floats, or None


# --- data ------------------------------------------------------------------------------------------------------------


def random_images(
    counts: tuple[int, ...], width: int, num_ids: int, separation: float, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Features (N, width) float32 and identities (N,) of some lists of images of the same people."""
    rng = np.random.default_rng(seed)
    people = separation * rng.standard_normal((num_ids, LATENT), dtype=np.float32)
    lift = rng.standard_normal((LATENT, width), dtype=np.float32)
    images = []
    for count in counts:
        ids = rng.integers(num_ids, size=count)
        features = np.empty((count, width), dtype=np.float32)
        for here in blocks(count, width, 1024):  # no second copy of the features, so no peak before the start
            latent = people[ids[here]] + rng.standard_normal((here.stop - here.start, LATENT), np.float32)
            features[here] = latent @ lift
            features[here] += rng.standard_normal(features[here].shape, dtype=np.float32)
        images.append((features, ids))
    return images


def random_problem(size: Size, separation: float) -> tuple[np.ndarray, ...]:
    """The first six arguments of :func:`lreid.retrieval.evaluate`."""
    counts = size.queries, size.gallery
    features, ids = zip(*random_images(counts, size.width, size.identities, separation), strict=True)
    rng = np.random.default_rng(1)
    return *features, *ids, *(rng.integers(size.cameras, size=count) for count in counts)


# --- contestants of the evaluation -----------------------------------------------------------------------------------


def product(queries: np.ndarray, gallery: np.ndarray, *_: np.ndarray) -> None:
    """The scores alone, in the blocks that ``evaluate`` takes."""
    rows, columns = torch.from_numpy(queries), torch.from_numpy(gallery)
    scores = torch.empty(0)
    for here in blocks(len(rows), len(columns)):
        if not len(scores):
            scores = torch.empty(here.stop, len(columns))
        torch.mm(rows[here], columns.T, out=scores[: here.stop - here.start])


def ours(*problem: np.ndarray) -> tuple[float, float]:
    result = evaluate(*problem)
    return result.mAP, float(result.cmc[0])


def through_index(name: str, *problem: np.ndarray) -> tuple[float, float]:
    """The figures through an index of faiss, which is built each time."""
    result = evaluate(*problem, search=FaissIndex(name).over(problem[1], "cosine"))
    return result.mAP, float(result.cmc[0])


def argsort(queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams) -> tuple[float, float]:
    """A full argsort of every row, a block of the same size at a time."""
    gallery = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    precisions, firsts = [], []
    for here in blocks(len(queries), len(gallery)):
        orders = np.argsort(-(queries[here] @ gallery.T), axis=1)  # (B, G)
        for order, pid, cam in zip(orders, query_ids[here], query_cams[here], strict=True):
            ranked = order[(gallery_ids[order] != pid) | (gallery_cams[order] != cam)]
            ranks = np.flatnonzero(gallery_ids[ranked] == pid)
            if len(ranks):
                precisions.append(np.mean(np.arange(1, len(ranks) + 1) / (ranks + 1)))
                firsts.append(ranks[0] == 0)
    return float(np.mean(precisions)), float(np.mean(firsts))


def torchreid(queries, gallery, *labels) -> tuple[float, float]:
    """torchreid's ``evaluate_rank`` without Cython, and its distance matrix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends Cython
        from torchreid.reid import metrics
    distances = metrics.compute_distance_matrix(torch.from_numpy(queries), torch.from_numpy(gallery), "cosine")
    cmc, mean_ap = metrics.evaluate_rank(distances.numpy(), *labels, use_cython=False)
    return float(mean_ap), float(cmc[0])


RUN: dict[str, Callable[..., Any]] = {
    "product": product,
    "evaluate": ours,
    "flat": partial(through_index, "flat"),
    "hnsw": partial(through_index, "hnsw"),
    "argsort": argsort,
    "torchreid": torchreid,
}


class Contestant:
    """A contestant in a process of its own, which holds the features between its turns."""

    def __init__(self, name: str, size: Size, separation: float) -> None:
        self.name = name
        self.pool = ProcessPoolExecutor(1, get_context("spawn"), _prepare, (name, size, separation))
        self.turns: list[Measured] = []

    def take_turn(self) -> None:
        self.turns.append(self.pool.submit(_take_turn).result())

    @property
    def seconds(self) -> float:
        return statistics.median(turn.seconds for turn in self.turns)

    @property
    def processor(self) -> float:
        return statistics.median(turn.processor for turn in self.turns)

    @property
    def megabytes(self) -> float:
        return self.turns[-1].megabytes


contestant: Callable[..., Any]  # of the process of a contestant, as are the next two
problem: tuple[np.ndarray, ...]
before: float  # megabytes


def _prepare(name: str, size: Size, separation: float) -> None:
    global contestant, problem, before
    contestant, problem = RUN[name], random_problem(size, separation)
    contestant(*random_problem(SMALL, 1.0))  # imports and threads are no part of what is measured
    before = peak_megabytes()


def _take_turn() -> Measured:
    start, used = time.perf_counter(), time.process_time()
    figures = contestant(*problem)
    return Measured(time.perf_counter() - start, time.process_time() - used, peak_megabytes() - before, figures)


def peak_megabytes() -> float:
    """Largest resident set of this process so far."""
    try:  # on Linux ru_maxrss begins with that of the parent
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 2**10


def time_evaluation(name: str, separation: float, wanted: list[str], repeats: int) -> None:
    """Prints the table of one size and one separation."""
    size = SIZES[name]
    contestants = {each: Contestant(each, size, separation) for each in wanted}
    for turn in range(repeats):
        for contestant in contestants.values():
            if turn == 0 or contestant.name in OFTEN:  # the others are slow enough to time once
                contestant.take_turn()
    for contestant in contestants.values():
        contestant.pool.shutdown()
    bare, own = contestants["product"], contestants["evaluate"]
    mean_ap, rank1 = own.turns[0].figures
    print(f"\n{name}: {size.queries} × {size.gallery} × {size.width}, mAP {mean_ap:.3f}, Rank-1 {rank1:.3f}")
    rows = []
    for contestant in contestants.values():
        ratio, figures = contestant.seconds / bare.seconds, contestant.turns[0].figures
        apart = f"{abs(figures[0] - mean_ap):.1e}" if figures and contestant is not own else ""
        target = ""
        if contestant is own:
            target = f"≤ {RATIO} × product: {held(ratio <= RATIO)}, "
            target += f"≤ {size.megabytes} MB: {held(own.megabytes <= size.megabytes)}"
        elif contestant.name == "flat":
            times = contestant.seconds / own.seconds
            target = f"≤ {THROUGH_FLAT} × evaluate: {held(times <= THROUGH_FLAT)}, {times:.2f} ×"
        elif contestant.name == "torchreid":
            speedup = contestant.seconds / own.seconds
            target = f"evaluate ≥ {SPEEDUP} × faster: {held(speedup >= SPEEDUP)}, {speedup:.0f} ×"
        processor, above = f"{contestant.processor / bare.processor:.2f}", f"{contestant.megabytes:.0f}"
        measured = (f"{contestant.seconds:.2f}", f"{ratio:.2f}", processor, above, apart, target)
        rows.append((contestant.name, str(len(contestant.turns)), *measured))
    heads = ("", "turns", "seconds", "× product", "CPU × product", "MB above", "mAP apart", "target")
    sides = ("left", *6 * ["right"], "left")
    print(tabulate(rows, heads, colalign=sides, disable_numparse=True))


def held(truth: bool) -> str:
    return "held" if truth else "MISSED"


# --- galleries -------------------------------------------------------------------------------------------------------

COLUMNS = (
    "kind",
    "build, s",
    "peak, MB",
    "file, MB",
    "save, s",
    "load, s",
    "mapped, s",
    "queries/s, one by one",
    "queries/s, batch",
    "recall@1",
    "recall@10",
)


def time_gallery(kind: str, images: int, width: int, queries: int) -> list[str]:
    """One row of the table: a gallery of random images, built, saved, loaded and searched in this process."""
    faiss = import_faiss()
    threads = faiss.omp_get_max_threads()
    gallery_images, query_images = random_images((images, queries), width, max(1, images // 50), 1.5)
    (features, ids), vectors = gallery_images, query_images[0]
    paths = [f"{number:07d}.jpg" for number in range(images)]
    before = peak_megabytes()
    gallery, build = timed(lambda: Gallery.build(features, paths, ids, model="random", kind=kind))
    peak = peak_megabytes() - before
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gallery")
        _, save = timed(lambda: gallery.save(file))
        _, mapped = timed(lambda: Gallery.load(file, memory_map=True))
        gallery, load = timed(lambda: Gallery.load(file))
        megabytes = file.stat().st_size / 2**20
    matches, batch = timed(lambda: gallery.search(vectors, 10, model="random"))
    faiss.omp_set_num_threads(1)
    single = vectors[:200, None]  # (200, 1, D)
    _, one_by_one = timed(lambda: [gallery.search(vector, 10, model="random") for vector in single])
    truth = nearest_ten(vectors, features)
    recalls = (share_found(truth[:, :k], matches.keys[:, :k]) for k in (1, 10))
    print(f"{kind}: done, {threads} threads", file=sys.stderr)
    return [
        kind,
        f"{build:.1f}",
        f"{peak:.0f}",
        f"{megabytes:.0f}",
        f"{save:.1f}",
        f"{load:.1f}",
        f"{mapped:.1f}",
        f"{len(single) / one_by_one:.0f}",
        f"{queries / batch:.0f}",
        *(f"{recall:.3f}" for recall in recalls),
    ]


def nearest_ten(queries: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Rows (Q, 10) of the ten images of highest cosine similarity, found by comparing with all of them."""
    columns = torch.from_numpy(gallery)
    norms = torch.cat([rows.norm(dim=1) for rows in columns.split(4096)])
    rows = [(part @ columns.T / norms).topk(10).indices for part in torch.from_numpy(queries).split(64)]
    return torch.cat(rows).numpy()


def share_found(truth: np.ndarray, neighbours: np.ndarray) -> float:
    """Of the true neighbours (Q, k), the share among those found (Q, k)."""
    return float((truth[:, :, None] == neighbours[:, None]).any(2).mean())


def timed(call):
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def time_galleries(kinds: list[str], images: int, width: int, queries: int) -> None:
    """Prints a Markdown table with one row a kind, each measured in a process of its own."""
    print(f"{images} images × {width}, {queries} queries", file=sys.stderr)
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}")
    for kind in kinds:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            row = pool.submit(time_gallery, kind, images, width, queries).result()
        print(f"| `{row[0]}` | {' | '.join(row[1:])} |", flush=True)


def main(args: argparse.Namespace) -> None:
    if args.threads is None:
        args.threads = torch.get_num_threads()
    for name, least in (("repeats", 1), ("threads", 1), ("images", 10), ("width", 1), ("queries", 1)):
        if getattr(args, name) < least:
            raise InputError(f"--{name} {getattr(args, name)}: must be at least {least}")
    for library in ("OMP", "OPENBLAS", "MKL"):  # for the processes to come
        os.environ[f"{library}_NUM_THREADS"] = str(args.threads)
    if args.index:
        time_galleries(args.kinds, args.images, args.width, args.queries)
        return
    print(f"{args.threads} threads, medians of {args.repeats} turns")
    for name in args.sizes:
        wanted = [each for each in args.contestants or CONTESTANTS if each not in ("product", "evaluate")]
        if args.contestants is None and name == "msmt17":
            wanted.remove("torchreid")
            print("\ntorchreid is left out at MSMT17 size, where it needs 15 to 19 GB; name it in --contestants")
        if "torchreid" in wanted and importlib.util.find_spec("torchreid") is None:
            wanted.remove("torchreid")
            print("\ntorchreid is not installed and left out")
        for separation in SIZES[name].separations:
            time_evaluation(name, separation, ["product", "evaluate", *wanted], args.repeats)


if __name__ == "__main__":
    sys.exit(run_tool(parser(), main))
