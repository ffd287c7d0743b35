#!/usr/bin/env python
"""Compare the speed of the exact evaluation with other code, or measure galleries of each kind of index.

    python tools/bench_retrieval.py                                     # sizes of Market-1501 and MSMT17
    python tools/bench_retrieval.py --sizes msmt17 --contestants product evaluate torchreid    # needs 20 GB of memory
    python tools/bench_retrieval.py --index --images 1000000            # galleries, as a Markdown table

Features are random but clustered like those of a network. An identity is a random point in 64 dimensions, and the
identity's images are random points near it. A random matrix maps all points to the full width and adds a little noise.
Every contestant (an evaluation to compare) runs in a separate process, so that its peak memory can be measured.
Contestants alternate.
"""

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
from lreid.apps.cli import run_tool
from lreid.apps.search import KINDS


class Size(NamedTuple):
    """Size of a test set, separation of its identities (hard and easy), and maximum memory of an evaluation."""

    queries: int
    gallery: int
    width: int
    identities: int
    cameras: int
    separations: tuple[float, float]  # spread of identities over spread of an identity's images, for mAP 0.1 and 0.8
    megabytes: int  # maximum memory of an evaluation, without the features


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
        help="contestants besides product and evaluate (default: all, except torchreid at MSMT17 size)",
    )
    top.add_argument(
        "--repeats", type=int, default=3, help="turns of product, evaluate and flat, of which the median is reported"
    )
    top.add_argument("--threads", type=int, help="number of threads (default: torch's)")
    top.add_argument("--index", action="store_true", help="measure galleries instead of evaluations")
    top.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    top.add_argument("--images", type=int, default=1_000_000, help="images per gallery")
    top.add_argument("--width", type=int, default=512, help="length of the features in a gallery")
    top.add_argument("--queries", type=int, default=1000, help="queries per gallery")
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

import numpy as np
import torch
from tabulate import tabulate

from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.retrieval import FaissIndex, evaluate
from lreid.retrieval.faiss_library import import_faiss
from lreid.retrieval.scores import blocks

LATENT = 64  # dimensions of the random points


SMALL = Size(300, 2000, 128, 75, 6, (0.48, 0.98), 400)  # for warm-up
RATIO = 1.3  # target: time / time of the matrix product, on a CPU with AVX-512
SPEEDUP = 20  # target: times faster than torchreid
THROUGH_FLAT = 1.3  # target: time through a flat index of faiss / time of evaluate
OFTEN = ("product", "evaluate", "flat")  # these take part in every round


class Measured(NamedTuple):
    """One turn of a contestant.

    Attributes:
        seconds: wall time of the turn.
        processor: CPU time in seconds, which other processes hardly influence.
        megabytes: peak memory of the process so far, minus its memory after the features were created.
        figures: mAP and Rank-1; None if the contestant does not compute them.
    """

    seconds: float
    processor: float
    megabytes: float
    figures: Any  # a tuple of two floats, or None


# --- data ------------------------------------------------------------------------------------------------------------


def random_images(
    counts: tuple[int, ...], width: int, num_ids: int, separation: float, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Create features (N, width) float32 and identities (N,) for several lists of images of the same people."""
    rng = np.random.default_rng(seed)
    people = separation * rng.standard_normal((num_ids, LATENT), dtype=np.float32)
    lift = rng.standard_normal((LATENT, width), dtype=np.float32)
    images = []
    for count in counts:
        ids = rng.integers(num_ids, size=count)
        features = np.empty((count, width), dtype=np.float32)
        for here in blocks(count, width, 1024):  # in blocks, so that the peak memory does not rise
            latent = people[ids[here]] + rng.standard_normal((here.stop - here.start, LATENT), np.float32)
            features[here] = latent @ lift
            features[here] += rng.standard_normal(features[here].shape, dtype=np.float32)
        images.append((features, ids))
    return images


def random_problem(size: Size, separation: float) -> tuple[np.ndarray, ...]:
    """Create random queries and a random gallery as the first six arguments of :func:`lreid.retrieval.evaluate`."""
    counts = size.queries, size.gallery
    features, ids = zip(*random_images(counts, size.width, size.identities, separation), strict=True)
    rng = np.random.default_rng(1)
    return *features, *ids, *(rng.integers(size.cameras, size=count) for count in counts)


# --- contestants of the evaluation -----------------------------------------------------------------------------------


def product(queries: np.ndarray, gallery: np.ndarray, *_: np.ndarray) -> None:
    """Compute only the similarity scores, in the same blocks as ``evaluate``."""
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
    """Evaluate through a faiss index; every evaluation builds the index again."""
    result = evaluate(*problem, search=FaissIndex(name).over(problem[1], "cosine"))
    return result.mAP, float(result.cmc[0])


def argsort(queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams) -> tuple[float, float]:
    """Evaluate by a full argsort of every row of scores, in the same blocks as ``evaluate``."""
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
    """Evaluate by torchreid's distance matrix and torchreid's ``evaluate_rank`` without Cython."""
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
    """A compared evaluation in a separate process, which keeps the features in memory between its turns."""

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


contestant: Callable[..., Any]  # this and the next two variables exist only in a contestant's process
problem: tuple[np.ndarray, ...]
before: float  # megabytes


def _prepare(name: str, size: Size, separation: float) -> None:
    global contestant, problem, before
    contestant, problem = RUN[name], random_problem(size, separation)
    contestant(*random_problem(SMALL, 1.0))  # imports and the start of threads are not measured
    before = peak_megabytes()


def _take_turn() -> Measured:
    start, used = time.perf_counter(), time.process_time()
    figures = contestant(*problem)
    return Measured(time.perf_counter() - start, time.process_time() - used, peak_megabytes() - before, figures)


def peak_megabytes() -> float:
    """Peak resident memory of this process so far, in MiB."""
    try:  # on Linux, ru_maxrss starts at the parent's value
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 2**10


def time_evaluation(name: str, separation: float, wanted: list[str], repeats: int) -> None:
    """Measure the evaluations on one size and one separation of test set, and print the table."""
    size = SIZES[name]
    contestants = {each: Contestant(each, size, separation) for each in wanted}
    for turn in range(repeats):
        for contestant in contestants.values():
            if turn == 0 or contestant.name in OFTEN:  # the others are slow and run once
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
    """Build, save, load and search a gallery of random images in this process; returns one row of the table."""
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
    """Find the rows (Q, 10) of each query's ten nearest gallery images by an exact search with cosine similarity."""
    columns = torch.from_numpy(gallery)
    norms = torch.cat([rows.norm(dim=1) for rows in columns.split(4096)])
    rows = [(part @ columns.T / norms).topk(10).indices for part in torch.from_numpy(queries).split(64)]
    return torch.cat(rows).numpy()


def share_found(truth: np.ndarray, neighbours: np.ndarray) -> float:
    """Share of the true neighbours (Q, k) that are among the returned neighbours (Q, k)."""
    return float((truth[:, :, None] == neighbours[:, None]).any(2).mean())


def timed(call):
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def time_galleries(kinds: list[str], images: int, width: int, queries: int) -> None:
    """Print a Markdown table with one row per kind of index; a separate process measures each kind."""
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
    for library in ("OMP", "OPENBLAS", "MKL"):  # affects the processes that are started below
        os.environ[f"{library}_NUM_THREADS"] = str(args.threads)
    if args.index:
        time_galleries(args.kinds, args.images, args.width, args.queries)
        return
    print(f"{args.threads} threads, medians of {args.repeats} turns")
    for name in args.sizes:
        wanted = [each for each in args.contestants or CONTESTANTS if each not in ("product", "evaluate")]
        if args.contestants is None and name == "msmt17":
            wanted.remove("torchreid")
            print(
                "\ntorchreid is left out at MSMT17 size, where it needs 15 to 19 GB; to include it, use --contestants"
            )
        if "torchreid" in wanted and importlib.util.find_spec("torchreid") is None:
            wanted.remove("torchreid")
            print("\ntorchreid is left out, because it is not installed")
        for separation in SIZES[name].separations:
            time_evaluation(name, separation, ["product", "evaluate", *wanted], args.repeats)


if __name__ == "__main__":
    sys.exit(run_tool(parser(), main))
