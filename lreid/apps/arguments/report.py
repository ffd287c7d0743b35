"""Compare runs: mean and standard deviation over the seeds of each method, and a fresh report.html in each run folder.

    lreid report runs/synthetic-10/*                        # a table for the terminal
    lreid report runs/synthetic-10/* --format markdown      # or csv, latex
    lreid report runs/synthetic-10/* --cost                 # with exemplars, time and memory
    lreid report runs/synthetic-10/* --html compared.html   # one page about all of them
    lreid report runs/synthetic-10-dwopp-seed0 --images   # ranked matches and maps in its report.html

Runs under different protocols (identities, splits, cameras), configs or AP conventions never share a row.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid report``."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    parser.add_argument(
        "--format", choices=("text", "markdown", "csv", "latex"), default="text", help="of the table (default: text)"
    )
    parser.add_argument("--each", action="store_true", help="a line for each run, not the mean over seeds")
    parser.add_argument("--cost", action="store_true", help="add exemplars, training time, peak memory, time a step")
    parser.add_argument(
        "--switches", action="store_true", help="add drift and gradients after task switches (EVAL.DRIFT_STEPS)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page about all runs as well")
    parser.add_argument(
        "--images",
        action="store_true",
        help="on it, or on the page of a single run: ranked matches, activation maps and a map of features; needs the "
        "checkpoints and the data, and of several seeds takes the first",
    )
    parser.add_argument("--blur", action="store_true", help="blur the images, to show them around")
