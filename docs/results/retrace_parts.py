"""Train retrace and its controls on every benchmark, and write retrace_parts.csv, the list of the runs.

    python docs/results/retrace_parts.py runs/parts                           # omniglot and vehicles need DATA.ROOT
    python docs/results/retrace_parts.py runs/parts DATA.ROOT where/they/are
    python docs/results/retrace_parts.py runs/parts --jobs 0                  # only list the runs that are finished

On every benchmark, retrace is compared with an alpha of one half (`fused_ft`), and with retrace without mean
subtraction, all with the same batches, learning rate of the updates and number of images. Rendered benchmarks
need lreid[start].
"""

import argparse
from pathlib import Path

from market import SEEDS, figures, write_list

from lreid.apps.sweep_runs import plan_runs, sweep
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


def parts(rate: float) -> dict[str, tuple[str, list[str]]]:
    """Method and keys of retrace, which doubles TRAIN.LR, and of its controls."""
    half = ["TRAIN.LR", f"{rate / 2:g}"]
    return {
        "retrace": ("retrace", half),
        "alpha-0.5": ("fused_ft", ["TRAIN.LR", f"{rate:g}"]),
        "no-centre": ("retrace", [*half, "METHOD.CENTRE", "0.0"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="DIR", help="folder of the runs")
    parser.add_argument("keys", nargs="*", metavar="KEY VALUE", help="config keys for all runs")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of simultaneous runs")
    args = parser.parse_args()
    runs = {}
    for benchmark, (rate, epochs) in BENCHMARKS.items():
        files = [CONFIGS / "benchmarks" / f"{benchmark}.yaml"]
        length = ["TRAIN.EPOCHS", str(epochs)] if epochs else []
        for part, (method, keys) in parts(rate).items():
            given = [*keys, "BATCH.IDENTITIES", "8", *length, *args.keys]
            planned = plan_runs(args.out / benchmark / part, [method], SEEDS, files=files, overrides=given)
            runs |= {(benchmark, part, seed): run for seed, run in zip(SEEDS, planned, strict=True)}
    if args.jobs:
        sweep(list(runs.values()), args.out, jobs=args.jobs)
    columns = ("benchmark", "part", "seed")
    finished = {key: run.folder for key, run in runs.items() if run.is_finished()}
    lines = [dict(zip(columns, key, strict=True)) | figures(read(folder)) for key, folder in finished.items()]
    write_list(LIST, lines)


if __name__ == "__main__":
    main()
