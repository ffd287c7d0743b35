#!/usr/bin/env python
"""Compares runs: mean and standard deviation over the seeds of each method, and a fresh report.html in each run folder.

    python tools/report.py runs/synthetic-10/*                        # a table for the terminal
    python tools/report.py runs/synthetic-10/* --format markdown      # or csv, latex
    python tools/report.py runs/synthetic-10/* --cost                 # with exemplars, time and memory

Runs under different protocols (identities, splits, cameras), configs or AP conventions never share a row.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.cli import run_tool
from lreid.report import comparison_table, write_report
from lreid.training.sweep import read_run


def main(args: argparse.Namespace) -> None:
    # A folder without results, such as the table of a sweep beside its runs, is passed over.
    folders = [
        run for run in args.runs if len(args.runs) == 1 or (run / "results.json").exists()
    ] or args.runs
    print(comparison_table([read_run(run) for run in folders], args.format, each=args.each, cost=args.cost))
    for run in folders:
        write_report(run)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("--format", choices=("text", "markdown", "csv", "latex"), default="text")
    parser.add_argument("--each", action="store_true", help="a line for each run, not the mean over seeds")
    parser.add_argument(
        "--cost", action="store_true", help="add exemplars, training time, peak memory, time a step"
    )
    sys.exit(run_tool(parser, main))
