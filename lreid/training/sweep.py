"""Many runs, one table: methods times seeds on one benchmark."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from lreid.config import load_config
from lreid.files import write_atomically, write_text
from lreid.report import comparison_table, learning_curve, read_results
from lreid.training.run import train

logger = logging.getLogger("lreid")


def sweep(
    files: Sequence[Path],
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    overrides: Sequence[str] = (),
) -> str:
    """Trains every method with every seed, each in a run folder of its own, and compares them.

    A run that is finished is not made again, one that broke off goes on.

    Args:
        files: config files, as for :func:`lreid.config.load_config`.
        methods: names of methods.
        seeds: seeds.
        out: holds a run folder ``METHOD-seedN`` for each, ``table.md``, ``table.csv``, ``table.tex`` and the
            picture ``curves.png``.
        overrides: ``KEY VALUE`` pairs for all runs.

    Returns:
        The table as text.

    Raises:
        InputError: as :func:`lreid.training.run.train`.
    """
    runs = []
    for seed in seeds:
        for method in methods:
            cfg = load_config(files, [*overrides, "SEED", str(seed), "METHOD.NAME", method])
            folder = out / f"{method}-seed{seed}"
            train(cfg, folder, resume=True)
            runs.append(read_results(folder))
    runs.sort(key=lambda run: methods.index(run["method"]))
    for suffix, form in (("md", "markdown"), ("csv", "csv"), ("tex", "latex")):
        write_text(out / f"table.{suffix}", comparison_table(runs, form).rstrip("\n") + "\n")
    curves = learning_curve(runs)
    write_atomically(out / "curves.png", lambda file: curves.savefig(file, format="png", dpi=120))
    return comparison_table(runs)
