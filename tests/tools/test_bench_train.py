"""The benchmark of training steps runs every kind of method and prints what it says it does; nothing is timed here."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from tiny import TINY

ARGUMENTS = [str(part) for pair in (TINY | {"METHOD.MARGIN": 0.5}).items() for part in pair]


def test_every_method_stands_beside_dmml_ft(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "bench_train.py",
        "--methods",
        "dwopp",
        "bot_ft_plus",
        "joint",
        "--rounds",
        "2",
        "--steps",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", [*command, "--json", str(tmp_path / "steps.json"), *ARGUMENTS])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(repository / "tools" / "bench_train.py"), run_name="__main__")
    out = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert out[0].startswith("small, 32 x 16, ") and out[0].endswith("median of 2 rounds of 1 steps")
    methods = ["dmml_ft", "dwopp", "bot_ft_plus", "joint"]
    assert [line.split()[0] for line in out[-4:]] == methods
    figures = json.loads((tmp_path / "steps.json").read_text())["methods"]
    assert list(figures) == methods and figures["dmml_ft"]["ratio"] == 1
    for each in figures.values():
        assert len(each["rounds_ms"]) == 2
        assert each["step_ms"] == pytest.approx(sum(each["rounds_ms"]) / 2)
        assert each["images_per_second"] * each["step_ms"] == pytest.approx(6 * 1000)  # six images a step
