"""Train the runs of the second table of docs/explanation/retrace.md, and write their list.

    python docs/results/retrace_parts.py runs/parts                           # omniglot and vehicles need DATA.ROOT
    python docs/results/retrace_parts.py runs/parts DATA.ROOT where/they/are
    python docs/results/retrace_parts.py runs/parts --jobs 0                  # only list the runs that are finished

On every benchmark, retrace is compared with an alpha of one half (`fused_ft`), and with retrace without mean
subtraction, all with the same batches, learning rate of the updates and number of images. Takes about three hours of
two cores. Rendered benchmarks need lreid[start].
"""

import argparse
import csv
from pathlib import Path

from market import SEEDS, figures

from lreid.apps.sweep_runs import PlannedRun, sweep
from lreid.config import CONFIGS
from lreid.results import read

LIST = Path(__file__).with_suffix(".csv")
BENCHMARKS = {  # learning rate of the updates, and epochs per task (None: those of the benchmark)
    "new-places": (4e-4, None),
    "synthetic-10": (2e-3, None),
    "synthetic-domains": (2e-3, 8),
    "synthetic-vehicles-10": (2e-3, 12),
    "omniglot": (2e-3, 12),
    "vehicles": (2e-3, 15),
    "rendered-10": (8e-3, None),
    "rendered-domains": (8e-3, None),
}


def parts(rate: float) -> dict[str, list[str]]:
    """Keys of retrace, which doubles TRAIN.LR, and of its controls."""
    retrace = ["METHOD.NAME", "retrace", "TRAIN.LR", f"{rate / 2:g}"]
    return {
        "retrace": retrace,
        "alpha 0.5": ["METHOD.NAME", "fused_ft", "TRAIN.LR", f"{rate:g}"],
        "no centre": [*retrace, "METHOD.CENTRE", "0.0"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="DIR", help="folder of the runs")
    parser.add_argument("keys", nargs="*", metavar="KEY VALUE", help="config keys for all runs")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of simultaneous runs")
    parser.add_argument("--benchmarks", nargs="+", default=BENCHMARKS, metavar="NAME", help="default: all")
    args = parser.parse_args()
    runs = {}
    for benchmark in args.benchmarks:
        rate, epochs = BENCHMARKS[benchmark]
        length = ["TRAIN.EPOCHS", str(epochs)] if epochs else []
        for seed in SEEDS:
            for part, keys in parts(rate).items():
                folder = args.out / f"{benchmark}-{part.replace(' ', '-')}-{seed}"
                given = [*keys, "BATCH.IDENTITIES", "8", *length, *args.keys, "SEED", str(seed)]
                file = CONFIGS / "benchmarks" / f"{benchmark}.yaml"
                runs[benchmark, part, seed] = PlannedRun(folder, (file,), tuple(given))
    if args.jobs:
        sweep(list(runs.values()), args.out, jobs=args.jobs)
    columns = ("benchmark", "part", "seed")
    lines = [
        dict(zip(columns, key, strict=True)) | figures(read(run.folder))
        for key, run in runs.items()
        if run.is_finished()
    ]
    with open(LIST, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
