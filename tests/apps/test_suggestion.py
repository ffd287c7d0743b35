"""What a run of DwoPP says of lreid's own method."""

from __future__ import annotations

import csv
import shlex
import statistics
from pathlib import Path

import pytest

from lreid.apps.cli import run_command
from lreid.apps.suggestion import MEASURED, suggestion
from lreid.config import CONFIGS, load_config
from lreid.methods import method_class, method_defaults


def said(*overrides: str, benchmark: str = "synthetic-10") -> str | None:
    files = [CONFIGS / "benchmarks" / f"{benchmark}.yaml"]
    return suggestion(load_config(files, ["METHOD.NAME", "dwopp", *overrides]))


@pytest.mark.parametrize("benchmark", MEASURED)
def test_a_benchmark_as_it_is_gets_measured_figures_and_a_command_that_resolves(benchmark: str) -> None:
    line = said("SEED", "3", benchmark=benchmark)
    assert line is not None
    assert all(f"{figure:.1f}" in line for figure in MEASURED[benchmark])
    words = shlex.split(line.partition(": lreid train ")[2])
    cfg = load_config([CONFIGS.parent / word for word in words[1:4:2]], words[4:])
    assert ("retrace", benchmark, 3) == (cfg.METHOD.NAME, cfg.BENCHMARK.NAME, cfg.SEED)
    assert words[0] == words[2] == "--config"
    assert words[4:] == ["SEED", "3"]


def test_a_changed_run_is_promised_nothing_and_keeps_what_fits_any_method() -> None:
    line = said("TRAIN.EPOCHS", "2", "EPISODE.SUPPORT", "2", "METHOD.TEMPERATURE", "3.0")
    assert line is not None
    assert "was not measured" in line
    assert line.endswith("SEED 0 TRAIN.EPOCHS 2")


def test_other_methods_say_nothing() -> None:
    assert said("METHOD.NAME", "retrace") is None
    assert said("METHOD.NAME", "dmml_ft") is None


@pytest.mark.parametrize(("rank", "told"), [("0", True), ("1", False)])
def test_the_first_of_several_processes_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rank: str, told: bool
) -> None:
    monkeypatch.setattr("lreid.apps.train.train", lambda *_, **__: {})
    monkeypatch.setenv("RANK", rank)
    assert run_command("train", ["--out", str(tmp_path / "run"), "METHOD.NAME", "dwopp"]) == 0
    assert ("retrace" in capsys.readouterr().out) == told


@pytest.mark.parametrize("benchmark", MEASURED)
def test_figures_are_means_of_the_runs_that_are_told(benchmark: str, repository: Path) -> None:
    with (repository / "docs" / "results" / "retrace.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == benchmark]
    for method, figure in zip(("retrace", "dwopp"), MEASURED[benchmark], strict=True):
        own = load_config([CONFIGS / "benchmarks" / f"{benchmark}.yaml"], ["METHOD.NAME", method])
        identities = own.BATCH.IDENTITIES if method == "retrace" else own.EPISODE.IDENTITIES
        options = method_defaults(method_class(method))
        rate = own.TRAIN.LR * options.get("rate", 1.0)
        keep, centre = (str(options.get(name, "")) for name in ("keep", "centre"))
        settings = (method, keep, centre, own.TRAIN.EPOCHS, identities, pytest.approx(rate))
        told = (
            (
                *(row[name] for name in ("method", "keep", "centre")),
                int(row["epochs"]),
                int(row["identities"]),
                float(row["rate"]),
            )
            for row in rows
        )
        runs = [float(row["seen_mAP"]) for row, each in zip(rows, told, strict=True) if each == settings]
        assert len(runs) == 3
        assert statistics.mean(runs) == pytest.approx(figure, abs=0.05)
