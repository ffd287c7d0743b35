"""Compare runs in a table of means and standard deviations over seeds; rewrite report.html in each run folder.

    lreid report runs/synthetic-10/*                        # a table in the terminal
    lreid report runs/synthetic-10/* --format markdown      # or csv, latex
    lreid report runs/synthetic-10/* --cost                 # adds columns for exemplars, time and memory
    lreid report runs/synthetic-10/* --html compared.html   # one page about all runs
    lreid report runs/synthetic-10-dwopp-seed0 --images     # adds images to the report.html of the run

Runs that differ in protocol (identities, splits, cameras), config or AP convention are in separate rows.
If a run's report.html already shows images, as after lreid train on your own images, lreid report rewrites this page
only if you pass --images.
"""

import argparse
from pathlib import Path

from lreid.apps.cli import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid report``."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    option(parser, "--format", "format of the table", "text", choices=("text", "markdown", "csv", "latex"))
    parser.add_argument("--each", action="store_true", help="show one row per run instead of means over seeds")
    parser.add_argument(
        "--cost", action="store_true", help="add columns for exemplars, training time, peak memory and time per step"
    )
    parser.add_argument(
        "--switches",
        action="store_true",
        help="add columns for feature drift and gradients after task switches (needs EVAL.DRIFT_STEPS)",
    )
    option(parser, "--html FILE", "also write one page about all runs", type=Path)
    parser.add_argument(
        "--images",
        action="store_true",
        help="add ranked matches, activation maps and a feature map of the run with the first seed; needs checkpoints "
        "and data",
    )
    parser.add_argument("--blur", action="store_true", help="blur the images on the page")
