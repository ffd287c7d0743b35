"""The benchmark of training steps runs every kind of method and prints what it says it does; nothing is timed here."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from tiny import TINY

pytestmark = pytest.mark.slow

ARGUMENTS = [str(part) for pair in (TINY | {"METHOD.MARGIN": 0.5}).items() for part in pair]


def run(
    repository: Path, tool: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines that a benchmark prints."""
    monkeypatch.setattr(sys, "argv", [tool, *command, *ARGUMENTS])
    monkeypatch.syspath_prepend(repository / "tools")
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(repository / "tools" / tool), run_name="__main__")
    assert end.value.code == 0
    return capsys.readouterr().out.splitlines()


def test_every_method_stands_beside_dmml_ft(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["methods", "--methods", "dwopp", "bot_ft_plus", "joint", "--rounds", "2", "--steps", "1", "--json"]
    out = run(repository, "bench_train.py", [*command, str(tmp_path / "steps.json")], monkeypatch, capsys)
    assert out[0].startswith("small, 32 x 16, ") and out[0].endswith("median of 2 rounds, 1 steps each")
    methods = ["dmml_ft", "dwopp", "bot_ft_plus", "joint"]
    assert [line.split()[0] for line in out[-4:]] == methods
    figures = json.loads((tmp_path / "steps.json").read_text())["methods"]
    assert list(figures) == methods and figures["dmml_ft"]["ratio"] == 1
    for name, each in figures.items():
        images = 12 if name == "bot_ft_plus" else 6  # a step, with as many exemplars of the first task on top
        assert len(each["rounds_ms"]) == 2
        assert each["step_ms"] == pytest.approx(sum(each["rounds_ms"]) / 2)
        assert each["images_per_second"] * each["step_ms"] == pytest.approx(images * 1000)


def test_a_method_stands_beside_itself_with_other_options(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variants = [["METHOD.TEMPERATURE", "2.0"], ["METHOD.DISTILLATION_WEIGHT", "0.5"]]
    command = ["methods", "--methods", "dwopp"]
    for variant in variants:
        command += ["--variant", *variant]
    out = run(repository, "bench_train.py", [*command, "--rounds", "1", "--steps", "1"], monkeypatch, capsys)
    names = [f"dwopp {' '.join(variant)}" for variant in variants]
    assert [line.split("  ")[0] for line in out[-2:]] == names
    assert f"x {names[0]}" in out[-4] and out[-2].split()[-2] == "1.00"


@pytest.mark.parametrize("method", ["dwopp", "dmml_ft"])
def test_a_step_is_split_into_its_parts(
    repository: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["step", "--rounds", "2", "--method", method, "--evaluate"]
    out = run(repository, "bench_train.py", command, monkeypatch, capsys)
    parts = [line.split("  ")[0] for line in out[4:-3]]
    teacher = ["teacher, forward"] if method == "dwopp" else []
    assert parts == [
        "whole step",
        "data",
        "student, forward and backward",
        *teacher,
        "losses, forward and backward",
        "optimiser",
    ]
    assert float(out[-2].split()[-1]) > 0 and out[-1].startswith("evaluation of ")


def test_growth_compares_tasks(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["dwopp", "bot_ft"]
    command = ["growth", "--methods", *methods, "--rounds", "1", "--steps", "1", "--tasks", "3"]
    out = run(repository, "bench_train.py", command, monkeypatch, capsys)
    for expected, line in zip(methods, out[-2:], strict=True):
        name, *figures = line.split()
        assert name == expected and len(figures) == 6 and all(float(each) > 0 for each in figures)


def test_the_plain_way_learns_from_the_same_losses(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("plain", "bf16"):
        (seconds,) = run(repository, "bench_plain.py", ["--steps", "1", "--variant", name], monkeypatch, capsys)
        assert float(seconds) > 0
    command = ["--variants", "plain", "fp32", "--rounds", "1", "--steps", "1"]
    out = run(repository, "bench_plain.py", command, monkeypatch, capsys)
    assert [line.split()[0] for line in out[-2:]] == ["plain", "fp32"] and out[-2].split()[2] == "1.00"
