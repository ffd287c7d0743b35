#!/usr/bin/env python
"""Compare two checkouts of lreid: metrics, weights and loss history of every method, and the output of other commands.

    git worktree add ../before v0.1
    python tools/compare_checkouts.py ../before . --out /tmp/compared

The tool trains each method that both checkouts have on a tiny benchmark with the running Python, and
compares the results bit for bit. Then the tool compares the outputs of the tests, searches and reports of both
checkouts. The tool does not compare values that depend on the clock or the installation. The tool does not repeat runs
that exist in --out, so the old checkout runs only once. The exit status is 1 if something differs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lreid.apps.cli import run_tool


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("before", type=Path, metavar="BEFORE", help="a checkout")
    top.add_argument("after", type=Path, metavar="AFTER", help="another one")
    top.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the runs")
    top.add_argument(
        "--methods", nargs="+", metavar="NAME", help="compare only these methods, without variants and other tools"
    )
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

import torch
import yaml

TINY = {
    "BENCHMARK": {
        "NAME": "tiny",
        "TRAIN": ["synthetic:plaza", "synthetic:station"],
        "UNSEEN": ["synthetic:park"],
        "TASKS_PER_DATASET": 2,
    },
    "SYNTHETIC": {"TRAIN_IDENTITIES": 8, "TEST_IDENTITIES": 6, "IMAGES_PER_IDENTITY": 4, "DISTRACTORS": 3},
    "EPISODE": {"IDENTITIES": 2, "SUPPORT": 2, "QUERY": 1},
    "BATCH": {"IDENTITIES": 2, "IMAGES": 3},
    "INPUT": {"HEIGHT": 32, "WIDTH": 16},
    "TRAIN": {"EPOCHS": 3, "LR": 1e-3, "CHECKPOINT_MINUTES": 0.0},
    "DATA": {"CACHE_GIB": 0.1},
}
SMALL = ["BATCH.IDENTITIES", "2", "BATCH.IMAGES", "3"]
SMALL_OF_METHOD = {"dask": ["METHOD.STYLE_STEPS", "3", "METHOD.STYLE_BATCH", "4"]}
# Options that run other parts of the code, as method and keys.
VARIANTS = {
    "drift": ("er_ace", ["EVAL.DRIFT_STEPS", "2"]),
    "workers": ("dwopp", ["DATA.WORKERS", "2"]),
    "accumulate": ("dwopp", ["TRAIN.ACCUMULATE", "2", "TRAIN.WARMUP_EPOCHS", "2", "TRAIN.SCHEDULE", "cosine"]),
    "stream": ("er", ["STREAM.SEGMENT", "4", "STREAM.ITERATIONS", "2", "TRAIN.OPTIMIZER", "sgd", "TRAIN.LR", "0.05"]),
    "paths": ("lwf_plus", ["METHOD.STORE", "paths", "METHOD.EXEMPLARS", "6"]),
    "merged": ("lwf", ["BENCHMARK.UNSEEN_GALLERIES", "both", "EVAL.AP", "trapezoidal", "EVAL.FLIP", "True"]),
    "device": ("aka", ["DATA.AUGMENT_ON", "device", "EVAL.METRIC", "euclidean"]),
}
# Keys of results.json that depend on the clock, the installation or the path of a run.
LEFT_OUT = (
    "seconds",
    "images_per_second",
    "peak_memory_mib",
    "versions",
    "config",
    "protocol",
    "command",
    "fingerprints",
)


def main(args: argparse.Namespace) -> int:
    tiny = args.out / "tiny.yaml"
    args.out.mkdir(parents=True, exist_ok=True)
    tiny.write_text(yaml.safe_dump(TINY))
    before, after = args.before.resolve(), args.after.resolve()
    names = args.methods or sorted(method_names(before) & method_names(after))
    jobs: dict[str, tuple[str, list[str]]] = {name: (name, []) for name in names} | ({} if args.methods else VARIANTS)
    different = 0
    for title, (method, keys) in jobs.items():
        faults = list(
            differences(
                outcome(before, args.out / "before" / title, tiny, method, keys),
                outcome(after, args.out / "after" / title, tiny, method, keys),
            )
        )
        different += bool(faults)
        print(f"{title}: {'; '.join(faults[:3]) or 'the same'}", flush=True)
    if not args.methods:
        faults = list(differences(tools(args.out / "before", before), tools(args.out / "after", after)))
        different += bool(faults)
        print(f"tools: {'; '.join(faults[:5]) or 'the same'}")
    return 1 if different else 0


def method_names(checkout: Path) -> set[str]:
    """Return the methods of a checkout, except PAD, which needs a pretrained CLIP model."""
    return {file.stem for file in (checkout / "configs" / "methods").glob("*.yaml")} - {"pad"}


def outcome(checkout: Path, out: Path, tiny: Path, method: str, keys: list[str]) -> dict[str, Any]:
    """Return the results and checkpoints of a run, and train the run first if it does not exist."""
    file = checkout / "configs" / "methods" / f"{method}.yaml"
    if "BATCH" in yaml.safe_load(file.read_text()):  # a method's file overrides the benchmark
        keys = [*SMALL, *keys]
    keys = [*SMALL_OF_METHOD.get(method, []), *keys]
    if not (out / "report.html").exists():
        shutil.rmtree(out, ignore_errors=True)
        call(checkout, "train", "--config", tiny, "--config", file, "--out", out, *keys)
    results = json.loads((out / "results.json").read_text())
    figures: dict[str, Any] = {key: value for key, value in results.items() if key not in LEFT_OUT}
    for file in sorted((out / "checkpoints").glob("task-*.pt")):
        state = torch.load(file, weights_only=True)
        figures[file.name] = {key: state[key] for key in ("model", "method")}
    return figures


def tools(runs: Path, checkout: Path) -> dict[str, Any]:
    """Return the outputs of the other commands for the runs of a checkout."""
    out, run = runs / "tools", runs / "dwopp"
    shutil.rmtree(out, ignore_errors=True)
    images = out / "images"
    call(checkout, "test", "--checkpoint", run, "--out", out / "test", "--rerank", "--expand", "--cross-model")
    call(checkout, "test", "--checkpoint", run, "--out", out / "adapted", "--adapt-norm", "features")
    images.mkdir(parents=True)
    for number, file in enumerate(sorted((checkout / "docs").glob("*.jpg")) * 2):
        (images / f"person{number}").mkdir()
        shutil.copy(file, images / f"person{number}" / f"{number}.jpg")
    gallery, checkpoint = out / "people.gallery", run / "checkpoints" / "task-04.pt"
    call(checkout, "search", "build", gallery, images, "--checkpoint", checkpoint)
    call(checkout, "search", "query", gallery, images, "--out", out / "matches")
    table = call(checkout, "report", run, runs / "dwpp", "--format", "csv")
    return {
        "test": json.loads((out / "test" / "test.json").read_text()),
        "adapted": json.loads((out / "adapted" / "test.json").read_text()),
        "matches": json.loads((out / "matches" / "matches.json").read_text()),
        "table": table.splitlines(),
    }


def call(checkout: Path, name: str, *words: object) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "lreid", name, *map(str, words)]
    done = subprocess.run(command, cwd=checkout, env=environment, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip() or done.stdout[-2000:]}")
    return done.stdout


def differences(before: Any, after: Any, key: str = "") -> Iterator[str]:
    """Yield the differences of two values, ignoring new keys and the paths of the two checkouts."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name not in after:
                yield f"{key}.{name} is missing"
            else:
                yield from differences(value, after[name], f"{key}.{name}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{key} has {len(after)} entries, not {len(before)}"
        else:
            for place, pair in enumerate(zip(before, after, strict=True)):
                yield from differences(*pair, f"{key}[{place}]")
    elif isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        if before.shape != after.shape or not torch.equal(before.nan_to_num(), after.nan_to_num()):
            yield f"{key} differs"
    elif isinstance(before, str) and isinstance(after, str) and "/before/" in before:
        if before.replace("/before/", "/after/") != after:
            yield f"{key} is {after!r}, not {before!r}"
    elif before != after and before == before:  # two NaN are equal
        yield f"{key} is {after!r}, not {before!r}"


if __name__ == "__main__":
    run_tool(parser(), lambda args: sys.exit(main(args)))
