#!/usr/bin/env python
"""Times ``lreid.retrieval.evaluate`` against the bare blocked matrix product, on random features, in one run.

python tools/bench_eval.py                     Market-1501 size
python tools/bench_eval.py --size msmt17       MSMT17 size
python tools/bench_eval.py --check             compares with an evaluation that sorts every row
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.retrieval import evaluate
from lreid.retrieval.scores import BLOCK_SCORES

# queries, gallery images, width, identities, cameras
SIZES = {
    "market1501": (3368, 19732, 2048, 750, 6),
    "msmt17": (11659, 82161, 512, 3060, 15),
    "small": (300, 2000, 128, 75, 6),
}


def random_problem(size: str, separation: float, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Features around one random centre an identity: query, gallery, then identities and cameras likewise."""
    num_queries, num_gallery, width, num_ids, num_cams = SIZES[size]
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((num_ids, width), dtype=np.float32)
    features, ids, cams = [], [], []
    for count in (num_queries, num_gallery):
        ids.append(rng.integers(num_ids, size=count))
        cams.append(rng.integers(num_cams, size=count))
        features.append(rng.standard_normal((count, width), dtype=np.float32))
        for feature, pid in zip(features[-1], ids[-1], strict=True):  # row by row: no second copy, no peak
            feature += separation * centers[pid]
    return *features, *ids, *cams


def bare_product(queries: np.ndarray, gallery: np.ndarray) -> None:
    """The scores alone, in the blocks that ``evaluate`` takes."""
    queries, gallery = torch.from_numpy(queries), torch.from_numpy(gallery)
    block = BLOCK_SCORES // len(gallery)
    scores = torch.empty(block, len(gallery))
    for part in queries.split(block):
        torch.mm(part, gallery.T, out=scores[: len(part)])


def by_sorting(queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams) -> tuple[float, float]:
    """mAP and Rank-1 by a full argsort of every row."""
    gallery = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    precisions, firsts = [], []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        order = np.argsort(-(gallery @ query), kind="stable")
        order = order[(gallery_ids[order] != pid) | (gallery_cams[order] != cam)]
        ranks = np.flatnonzero(gallery_ids[order] == pid)
        if len(ranks):
            precisions.append(np.mean(np.arange(1, len(ranks) + 1) / (ranks + 1)))
            firsts.append(ranks[0] == 0)
    return float(np.mean(precisions)), float(np.mean(firsts))


def peak_megabytes() -> float:
    """Largest resident set of this process so far (kilobytes on Linux, bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="market1501")
    parser.add_argument("--separation", type=float, default=0.25, help="of the identities; mAP grows with it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--check", action="store_true", help="compare with a full argsort of every row")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    problem = random_problem(args.size, args.separation)
    before = peak_megabytes()
    result = evaluate(*problem)
    peak = peak_megabytes()
    bare_product(*problem[:2])
    products, evaluations = [], []
    for _ in range(args.repeats):  # alternating, so that both see the same neighbours on the machine
        products.append(seconds(lambda: bare_product(*problem[:2])))
        evaluations.append(seconds(lambda: evaluate(*problem)))
    product, evaluation = statistics.median(products), statistics.median(evaluations)
    queries, gallery, width, *_ = SIZES[args.size]
    print(f"{queries} × {gallery} × {width}, {args.threads} threads, median of {args.repeats}")
    print(f"mAP {result.mAP:.6f}, Rank-1 {result.cmc[0]:.6f}, mINP {result.mINP:.6f}")
    print(f"bare product {product:.2f} s, evaluate {evaluation:.2f} s, ratio {evaluation / product:.2f}")
    print(f"peak memory {peak:.0f} MB, {peak - before:.0f} MB above the features and all that is imported")
    if args.check:
        mean_ap, rank1 = by_sorting(*problem)
        print(
            f"full argsort: mAP {mean_ap:.6f} ({abs(mean_ap - result.mAP):.1e} apart), "
            f"Rank-1 {rank1:.6f} ({abs(rank1 - result.cmc[0]):.1e} apart)"
        )


if __name__ == "__main__":
    main()
