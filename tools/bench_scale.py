#!/usr/bin/env python
"""Compare a gallery (in a file or in Milvus) with an exact search: recall, forbidden images, time and size.

    python tools/bench_scale.py /tmp/scale.gallery --kind hnsw --images 100000
    python tools/bench_scale.py milvus:/tmp/scale.db --images 10000 --searches 10000       # random filters
    python tools/bench_scale.py milvus:http://127.0.0.1:19530/scale --kind hnsw

The features are random but clustered like those of a network (see bench_retrieval.py). The gallery has 50 images per
identity, 8 cameras and random times. The gallery must not exist before the measurement; the tool does not delete it
afterwards. The exit status is 1 if a search returns an image that its filter forbids.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from lreid.apps.cli import run_tool


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("gallery", metavar="GALLERY", help="new gallery: a file, milvus:FILE.db or milvus:http://…")
    top.add_argument("--kind", choices=("flat", "hnsw", "ivfpq"), default="flat")
    top.add_argument("--shards", type=int, default=1, metavar="N")
    top.add_argument("--images", type=int, default=100_000)
    top.add_argument("--width", type=int, default=512)
    top.add_argument("--queries", type=int, default=200)
    top.add_argument("--single", type=int, default=50, help="number of queries that are timed one by one")
    top.add_argument(
        "--searches", type=int, default=0, metavar="N", help="number of searches, each with a random filter"
    )
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

import numpy as np

from bench_retrieval import peak_megabytes, random_images, timed
from lreid.gallery import Filter, Gallery

BATCH, HOUR = 20_000, 3600


def random_filters(rng: np.random.Generator, identities: int) -> Iterator[Filter]:
    """Yield random filters, from filters that pass almost all images to filters that pass no image."""
    while True:
        since = int(rng.integers(0, 24)) * HOUR
        yield Filter(
            cameras=rng.integers(-1, 8, rng.integers(1, 4)) if rng.random() < 0.4 else None,
            not_cameras=rng.integers(-1, 8, rng.integers(0, 4)),
            identities=rng.integers(0, identities, rng.integers(1, 20)) if rng.random() < 0.2 else None,
            not_identities=rng.integers(-1, identities, rng.integers(0, 20)),
            since=since if rng.random() < 0.4 else None,
            until=since + 4 * HOUR if rng.random() < 0.4 else None,
            not_both=[(int(rng.integers(identities)), int(rng.integers(8)))] if rng.random() < 0.5 else (),
        )


def main(args: argparse.Namespace) -> None:
    rng, identities = np.random.default_rng(0), max(1, args.images // 50)
    (features, ids), (queries, _) = random_images((args.images, args.queries), args.width, identities, 1.5)
    for rows in (features, queries):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cams, times = rng.integers(-1, 8, args.images), rng.integers(-1, 24 * HOUR, args.images)
    paths = np.array([f"{number:08d}.jpg" for number in range(args.images)], dtype=object)

    def part(start: int) -> tuple[np.ndarray, ...]:
        return tuple(column[start : start + BATCH] for column in (features, paths, ids, cams, times))

    def build() -> Gallery:
        gallery = Gallery.build(
            *part(0), model="random", kind=args.kind, shards=args.shards, at=args.gallery, whole=False
        )
        for start in range(BATCH, args.images, BATCH):
            gallery.add(*part(start), model="random")
        gallery.finish()
        return gallery

    gallery, seconds = timed(build)
    print(f"{args.gallery}: {args.images} x {args.width}, {args.kind}, built in {seconds:.1f} s", flush=True)

    def search(rows: np.ndarray, where: Filter) -> np.ndarray:
        return gallery.search(rows, 10, model="random", where=where).paths

    for name, where in (
        ("all", Filter()),
        ("7 of 8 cameras", Filter(not_cameras=[3])),
        ("1 of 8 cameras", Filter(cameras=[3])),
    ):
        allowed = np.flatnonzero(where.allows(ids, cams, times))
        latencies = []
        for row in queries[: args.single]:
            start = time.perf_counter()
            search(row[None], where)
            latencies.append(1000 * (time.perf_counter() - start))
        matches, batch = timed(lambda where=where: search(queries, where))
        best = np.argsort(-(queries @ features[allowed].T), axis=1)[:, :10]
        truth = paths[allowed[best]]
        recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(matches, truth, strict=True)])
        print(
            f"{name}: recall@10 {recall:.4f}, one query p50 {np.median(latencies):.1f} ms, "
            f"p95 {np.percentile(latencies, 95):.1f} ms, {len(queries) / batch:.0f} queries/s in a batch",
            flush=True,
        )

    forbidden = short = 0
    row_of = {path: row for row, path in enumerate(paths)}
    for number, where in zip(range(args.searches), random_filters(rng, identities), strict=False):
        allowed = where.allows(ids, cams, times)
        rows = [row_of[path] for path in search(queries[number % len(queries)][None], where)[0] if path]
        forbidden += int((~allowed[rows]).sum())
        short += len(rows) < min(10, allowed.sum())
    print(f"{args.searches} random filters: {forbidden} forbidden images, {short} results too short")
    print(f"peak memory {peak_megabytes():.0f} MB")
    sys.exit(forbidden > 0)


if __name__ == "__main__":
    sys.exit(run_tool(parser(), main))
