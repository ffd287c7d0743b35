"""A sweep makes each run once and tells means and spreads."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path

import pytest
from tiny import TINY

from lreid.training.sweep import sweep


def test_runs_are_made_once_and_compared(tmp_path: Path) -> None:
    overrides = [str(part) for pair in (TINY | {"TRAIN.EPOCHS": 1}).items() for part in pair]
    table = sweep([], ["dmml_ft", "joint"], [0, 1], tmp_path, overrides)
    assert "dmml_ft" in table and "joint" in table
    values = [
        json.loads((tmp_path / f"dmml_ft-seed{seed}" / "results.json").read_text())["summary"]["seen_mAP"]
        for seed in (0, 1)
    ]
    with open(tmp_path / "table.csv") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert float(rows["dmml_ft"]["seen_mAP"]) == pytest.approx(statistics.fmean(values), abs=1e-3)
    assert float(rows["dmml_ft"]["seen_mAP_std"]) == pytest.approx(statistics.stdev(values), abs=1e-3)
    assert {"table.md", "table.tex", "curves.png"} <= {file.name for file in tmp_path.iterdir()}

    before = (tmp_path / "joint-seed1" / "checkpoints" / "task-01.pt").stat().st_mtime_ns
    assert sweep([], ["dmml_ft", "joint"], [0, 1], tmp_path, overrides) == table
    assert (tmp_path / "joint-seed1" / "checkpoints" / "task-01.pt").stat().st_mtime_ns == before
