"""Train the methods of docs/results/market1501-dev.md and write their lists of runs.

    python docs/results/market.py runs/market             # trials, three seeds with the chosen settings, more epochs
    python docs/results/market.py runs/market --jobs 0    # only write the lists of the runs that are finished

Needs Market-1501's training half, VIPeR and PRID 2011 in datasets/, and lreid[start]. The trials and the three seeds
take about eight hours of two cores, and the runs with more epochs four; the checkpoints of all runs take 50 GB. Runs
in the lists are not repeated, so the command may be interrupted and repeated.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lreid.apps.sweep_runs import PlannedRun, sweep
from lreid.config import CONFIGS
from lreid.results import Results, read

RESULTS = Path(__file__).parent
FILE = CONFIGS / "benchmarks" / "market1501-dev-10.yaml"
IDENTITIES = 60  # per task
STEPS, IMAGES = 42, 48  # per task: training steps, and images per step
SHAPES = ((16, 3), (8, 6))  # identities x images per identity
RATES = ("2e-3", "6e-3")
TRIAL_SEED, SEEDS = 3, (0, 1, 2)
# Images with gradients per image of a batch, about: replay, two views, copies in other styles.
PASSES = {"er_metric": 2, "co2l_reid": 3, "dkp_pp": 2}
GALLERIES = ("start", "bot_ft", "lwf", "dwopp", "retrace", "lstkc_pp", "fused_ft")  # old galleries are searched, too
EPISODIC = ("joint", "dmml_ft", "dwpp", "dwopp", "dmml_ird")
METHODS = (
    *("bot_ft", "lwf", "dwopp", "retrace", "lstkc_pp", "fused_ft", "joint", "dmml_ft", "dwpp", "lstkc_ft", "dkp_pp"),
    *("er_metric", "co2l_reid", "dmml_ird"),
)


def settings(method: str, shape: tuple[int, int], rate: str, scale: int = 1) -> list[str]:
    """Keys of a method, a batch shape and a learning rate, at the same number of images with gradients."""
    identities, images = shape
    people = 10 * IDENTITIES if method == "joint" else IDENTITIES
    steps = scale * STEPS * (10 if method == "joint" else 1) / PASSES.get(method, 1)
    epochs = max(1, round(steps / (people // identities)))
    batch = ["BATCH.IDENTITIES", str(identities), "BATCH.IMAGES", str(images)]
    if method in EPISODIC:
        batch = [
            "EPISODE.IDENTITIES",
            str(identities),
            "EPISODE.SUPPORT",
            str(images - 1),
            "METHOD.METRIC",
            "euclidean",
        ]
    warmup = "2" if shape == SHAPES[0] else "1"  # about six steps
    return [*batch, "TRAIN.EPOCHS", str(epochs), "TRAIN.WARMUP_EPOCHS", warmup, "TRAIN.LR", rate]


@dataclass(frozen=True)
class Row:
    """A line of a list: a method, its settings and its seed."""

    method: str
    shape: tuple[int, int]
    rate: str
    seed: int
    scale: int = 1
    more: tuple[str, ...] = ()  # further keys and values

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which a line is found."""
        return (self.method, *map(str, self.shape), self.rate, str(self.seed), str(self.scale), " ".join(self.more))

    def run(self, out: Path, *, trial: bool) -> PlannedRun:
        name = "-".join([self.method, "x".join(map(str, self.shape)), *self.key[3:6], *self.more]).replace("/", "_")
        keys = settings(self.method, self.shape, self.rate, self.scale) if self.method != "start" else []
        keys += [*self.more, "SEED", str(self.seed)]
        if trial:
            keys += ["BENCHMARK.UNSEEN", "[]"]
        elif self.method in GALLERIES and not self.more and self.scale == 1:
            keys += ["EVAL.CROSS_MODEL", "True"]
        return PlannedRun(out / name, (FILE,), ("METHOD.NAME", self.method, *keys))


KEYS = ("method", "identities", "images", "rate", "seed", "scale", "more")
FIGURES = (
    *("seen_mAP", "seen_rank1", "unseen_mAP", "unseen_rank1", "mean_over_tasks_mAP", "forgetting", "plasticity"),
    *("reindex_free_mAP", "mapped_mAP"),
)
VERSIONS = (
    "commit",
    "lreid",
    "python",
    "torch",
    "torchvision",
    "numpy",
    "faiss-cpu",
    "processor",
    "threads",
    "instructions",
)


class Runs:
    """A list of runs in docs/results, and the folder in which its missing runs are trained."""

    def __init__(self, name: str, out: Path, *, trial: bool = False) -> None:
        self.file, self.out, self.trial = RESULTS / f"{name}.csv", out, trial
        self.lines: dict[tuple[str, ...], dict[str, Any]] = {}
        if self.file.exists():
            with open(self.file, encoding="utf-8", newline="") as stream:
                self.lines = {tuple(line[key] for key in KEYS): line for line in csv.DictReader(stream)}

    def train(self, rows: Sequence[Row], jobs: int) -> None:
        """Train the rows that the list lacks, and add them; without jobs, only add those that are trained."""
        missing = {row: row.run(self.out, trial=self.trial) for row in rows if row.key not in self.lines}
        if missing and jobs:
            sweep(list(missing.values()), self.out, jobs=jobs)
        for row, run in missing.items():
            if run.is_finished():
                results = read(run.folder)
                benchmark = {} if self.trial else {"benchmark": results["benchmark"]}
                self.lines[row.key] = benchmark | dict(zip(KEYS, row.key, strict=True)) | figures(results)
        order = {row.key: place for place, row in enumerate(rows)}
        self.lines = dict(sorted(self.lines.items(), key=lambda line: order.get(line[0], len(order))))
        write_list(self.file, list(self.lines.values()))


def write_list(file: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write a list of runs; without runs, leave the file as it is."""
    if not lines:
        return
    columns = dict.fromkeys(column for line in lines for column in line)
    with open(file, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def figures(results: Results) -> dict[str, Any]:
    """The figures of a run, its costs, and what computed them."""
    return {
        **{name: "" if (value := results["summary"].get(name)) is None else f"{value:.4f}" for name in FIGURES},
        "exemplars": results["exemplars"],
        "images_trained": results["images_trained"],
        "steps_trained": results["steps_trained"],
        "train_cpu_seconds": f"{results['seconds']['train_cpu']:.1f}",
        **{name: results["versions"].get(name, "") for name in VERSIONS},
    }


def trials(method: str) -> list[Row]:
    """The trials of a method; unseen sets play no part in the choice."""
    return [Row(method, shape, rate, TRIAL_SEED) for shape in SHAPES for rate in RATES]


def chosen(tried: Runs, method: str) -> Row:
    """The trial of a method with the best average incremental mAP."""
    return max(trials(method), key=lambda row: float(tried.lines[row.key]["mean_over_tasks_mAP"]))


def finished(tried: Runs, methods: Sequence[str]) -> list[Row]:
    """The chosen trials of the methods whose trials are finished."""
    return [chosen(tried, method) for method in methods if all(row.key in tried.lines for row in trials(method))]


def table(tried: Runs) -> list[Row]:
    """Three seeds of every method whose trials are finished, with its chosen settings; one of the initial model."""
    best = finished(tried, METHODS)
    return [Row("start", SHAPES[0], RATES[0], SEEDS[0]), *(replace(row, seed=seed) for seed in SEEDS for row in best)]


def longer(tried: Runs) -> list[Row]:
    """More epochs with the chosen settings, on one seed: does the paper's order of the methods hold then?"""
    best = finished(tried, ("lwf", "bot_ft", "dwopp", "dwpp", "dmml_ft"))
    return [replace(row, seed=SEEDS[0], scale=scale) for scale in (4, 12) for row in best]


# What the parts of retrace add: alpha 0.5 at the rate of its updates instead of a searched one, and no centring.
PARTS = [
    row
    for seed in SEEDS
    for row in (
        Row("fused_ft", SHAPES[0], "4e-3", seed),
        Row("retrace", SHAPES[0], "2e-3", seed, more=("METHOD.CENTRE", "0.0")),
    )
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="DIR", help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of simultaneous runs")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME", help="methods to train (default: all)")
    args = parser.parse_args()
    tried = Runs("market1501-dev-trials", args.out / "trials", trial=True)
    tried.train([row for method in args.methods for row in trials(method)], args.jobs)
    Runs("market1501-dev", args.out / "table").train(table(tried), args.jobs)
    Runs("market1501-dev-parts", args.out / "parts").train(PARTS, args.jobs)
    Runs("market1501-dev-epochs", args.out / "epochs").train(longer(tried), args.jobs)


if __name__ == "__main__":
    main()
