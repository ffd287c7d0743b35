"""Write into REPRODUCIBILITY.md which method was run on which benchmark, from the lists of runs in docs/results.

    python docs/runs_table.py

A test fails when the page is not up to date.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS.parent / "REPRODUCIBILITY.md"
BLOCK = "<!-- runs: written by docs/runs_table.py -->\n{}\n<!-- end of runs -->"


def seeds() -> dict[tuple[str, str], set[str]]:
    """The seeds of all runs with the options of the method's file, by benchmark and method."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in sorted((DOCS / "results").glob("*.csv")):
        with open(file, encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                if "method" in row and "seed" in row:
                    found[row["benchmark"], row["method"]].add(row["seed"])
    return found


def table() -> str:
    """One row per file of configs/methods, one column per benchmark, the number of seeds in each cell."""
    runs = seeds()
    benchmarks = sorted({benchmark for benchmark, _ in runs})
    methods = sorted(file.stem for file in (DOCS.parent / "configs" / "methods").glob("*.yaml"))
    rows = [["method", *benchmarks], ["---", *["---:"] * len(benchmarks)]]
    rows += [
        [f"`{each}`", *(str(len(runs[at, each])) if (at, each) in runs else "" for at in benchmarks)]
        for each in methods
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def written(page: str) -> str:
    """The page with the table as it must be."""
    return re.sub(BLOCK.format("(.*?)"), lambda _: BLOCK.format(table()), page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
