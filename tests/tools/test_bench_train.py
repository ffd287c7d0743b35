"""The benchmark of training steps runs every kind of method and prints what it says it does; nothing is timed here."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import FEW, TINY, as_arguments

pytestmark = pytest.mark.slow

Run = Callable[..., list[str]]


@pytest.fixture
def run(run_tool: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The lines that a benchmark prints; what it starts runs in this process, which saves importing torch again."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")

    process = subprocess.run

    def started(command: list[str], **options: Any) -> Any:
        if command[0] != sys.executable:
            return process(command, **options)  # git
        with redirect_stdout(io.StringIO()) as out:
            status = run_tool(Path(command[1]).name, *command[2:])
        return SimpleNamespace(returncode=status, stdout=out.getvalue(), stderr="")

    monkeypatch.setattr(subprocess, "run", started)

    def run(tool: str, *command: str, **keys: Any) -> list[str]:
        assert run_tool(tool, *command, *as_arguments(TINY, {"METHOD.MARGIN": 0.5}, keys)) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_methods_are_compared_with_dmml_ft(run: Run, tmp_path: Path) -> None:
    command = ["methods", "--methods", "dwopp", "bot_ft_plus", "joint", "--rounds", "2", "--steps", "1", "--json"]
    out = run("bench_train.py", *command, str(tmp_path / "steps.json"), **FEW)
    assert out[0].startswith("few, 32 x 16, ") and out[0].endswith("median of 2 rounds, 1 steps each")
    methods = ["dmml_ft", "dwopp", "bot_ft_plus", "joint"]
    assert [line.split()[0] for line in out[-4:]] == methods
    figures = json.loads((tmp_path / "steps.json").read_text())["methods"]
    assert list(figures) == methods and figures["dmml_ft"]["ratio"] == 1
    for name, each in figures.items():
        images = 12 if name == "bot_ft_plus" else 6  # a step, with as many exemplars of the first task on top
        assert len(each["rounds_ms"]) == 2
        assert each["step_ms"] == pytest.approx(sum(each["rounds_ms"]) / 2)
        assert each["images_per_second"] * each["step_ms"] == pytest.approx(images * 1000)


def test_variants_of_a_method_are_compared(run: Run) -> None:
    variants = ["METHOD.TEMPERATURE 2.0", "METHOD.DISTILLATION_WEIGHT 0.5"]
    words = [word for variant in variants for word in ("--variant", *variant.split())]
    out = run("bench_train.py", "methods", "--methods", "dwopp", *words, "--rounds", "1", "--steps", "1", **FEW)
    names = [f"dwopp {variant}" for variant in variants]
    assert [line.split("  ")[0] for line in out[-2:]] == names
    assert f"x {names[0]}" in out[-4] and out[-2].split()[-2] == "1.00"


@pytest.mark.parametrize("method", ["dwopp", "dmml_ft"])
def test_step_is_split_into_its_parts(run: Run, method: str) -> None:
    out = run("bench_train.py", "step", "--rounds", "2", "--method", method, "--evaluate", **FEW)
    parts = [line.split("  ")[0] for line in out[4:-3]]
    teacher = ["teacher, forward"] if method == "dwopp" else []
    both = ["student, forward and backward", *teacher, "losses, forward and backward"]
    assert parts == ["whole step", "data", *both, "optimiser"]
    assert float(out[-2].split()[-1]) > 0 and out[-1].startswith("evaluation of ")


def test_growth_compares_tasks(run: Run) -> None:
    out = run("bench_train.py", "growth", "--methods", "dwopp", "--rounds", "1", "--steps", "1", "--tasks", "3", **FEW)
    name, *figures = out[-1].split()
    assert name == "dwopp" and len(figures) == 6 and all(float(each) > 0 for each in figures)


def test_plain_loop_is_compared(run: Run) -> None:
    plain, bf16 = run("bench_plain.py", "--variants", "plain", "bf16", "--rounds", "1", "--steps", "1", **FEW)[-2:]
    assert plain.split()[0] == "plain" and plain.split()[2] == "1.00"
    assert bf16.split()[0] == "bf16" and float(bf16.split()[1]) >= 0
