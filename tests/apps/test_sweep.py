"""A sweep plans all combinations, trains each run once, and compares them; the command ``lreid sweep``."""

import contextlib
import csv
import io
import json
import math
import runpy
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import PATIENCE, wait_until
from tiny import FEW, ONE_TASK, TINY, as_arguments

from lreid.apps import sweep_runs, sweep_search
from lreid.apps.arguments import split_pairs
from lreid.apps.sweep_runs import PlannedRun, plan_runs, sweep
from lreid.apps.sweep_search import images_of
from lreid.build import load_run_config
from lreid.checkpoint import load_newest
from lreid.config import load_config
from lreid.config_keys import Config
from lreid.errors import InputError
from lreid.training.run import train
from lreid.training.run_folder import RunFolder, is_busy
from lreid.utils.extras import Extra

OVERRIDES = as_arguments(TINY, FEW, ONE_TASK)
ONE_TASK_EACH = as_arguments(TINY, ONE_TASK)


def names(runs: list[PlannedRun], out: Path) -> list[str]:
    return [str(run.folder.relative_to(out)) for run in runs]


def test_runs_of_the_first_seed_come_first(tmp_path: Path) -> None:
    runs = plan_runs(tmp_path, ["joint", "dwopp"], [0, 3])
    assert names(runs, tmp_path) == ["joint-seed0", "dwopp-seed0", "joint-seed3", "dwopp-seed3"]
    assert [(run.cfg.METHOD.ALIAS, run.cfg.SEED) for run in runs][1:3] == [("", 0), ("joint", 3)]


def test_values_are_combined_and_joined_keys_vary_together(tmp_path: Path) -> None:
    vary = {"METHOD.ALPHA,METHOD.BETA": ["0,1", "1,-1"], "TRAIN.LR": ["1e-3", "1e-4"]}
    runs = plan_runs(tmp_path, ["decoupled"], [0], vary=vary, overrides=["TRAIN.LR", "5", "METHOD.TEMPERATURE", "2"])
    combined = [f"{pair}-LR={rate}" for pair in ("ALPHA=0-BETA=1", "ALPHA=1-BETA=-1") for rate in ("1e-3", "1e-4")]
    assert names(runs, tmp_path) == [f"decoupled-{each}-seed0" for each in combined]
    last = runs[-1].cfg
    assert (last.METHOD.ALPHA, last.METHOD.BETA, last.METHOD.TEMPERATURE, last.TRAIN.LR) == (1, -1, 2, 1e-4)


def test_pairs_after_an_option_of_several_words_are_separated() -> None:
    pairs = ["TRAIN.EPOCHS", "6"]
    for values in (["dwopp", "joint"], ["TRAIN.LR", "1", "2"], ["METHOD.ALPHA,METHOD.BETA", "0,1", "1,-1"]):
        assert split_pairs(values, start=1) == (values, [])
        assert split_pairs(values + pairs, start=1) == (values, pairs)


def test_folder_names_are_unique_and_without_slashes(tmp_path: Path) -> None:
    vary = {"METHOD.METRIC": ["cosine"], "BENCHMARK.TRAIN": ["['csv:a/b.csv']"]}
    assert names(plan_runs(tmp_path, ["dwopp"], [0], vary=vary), tmp_path) == [
        "dwopp-METHOD.METRIC=cosine-TRAIN=_csv_a_b.csv_-seed0"
    ]


def test_each_of_several_benchmarks_has_a_subfolder(tmp_path: Path, repository: Path) -> None:
    common = repository / "configs" / "benchmarks" / "synthetic-10.yaml"
    short, long = tmp_path / "short.yaml", tmp_path / "long.yaml"
    short.write_text("TRAIN: {EPOCHS: 2}")
    long.write_text("TRAIN: {EPOCHS: 200}")
    runs = plan_runs(tmp_path, ["dwopp"], [0], files=[common], benchmarks=[short, long])
    assert names(runs, tmp_path) == ["short/dwopp-seed0", "long/dwopp-seed0"]
    assert [run.cfg.TRAIN.EPOCHS for run in runs] == [2, 200]
    assert names(plan_runs(tmp_path, ["dwopp"], [0], benchmarks=[long]), tmp_path) == ["dwopp-seed0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": ["METHOD.TEMPERATURE", "2.0"]}, "METHOD.TEMPERATURE is no option"),
        ({"vary": {"METHOD.TEMPERATURE": ["1", "2"]}}, "METHOD.TEMPERATURE is no option"),
        ({"methods": ["dwopp"], "vary": {"METHOD.TEMPERATURE": ["1", "0"]}}, "METHOD.TEMPERATURE is 0"),
        ({"overrides": ["TRAIN.EPOCHS", "0"]}, "TRAIN.EPOCHS is 0"),
        ({"overrides": ["SEED", "1"]}, "--seeds"),
        ({"vary": {"METHOD.NAME": ["joint"]}}, "--methods"),
        ({"methods": ["jiont"]}, "METHOD.NAME 'jiont' is no method"),
        ({"seeds": [0, 0]}, "dwopp-seed0: "),
        ({"vary": {"TRAIN.LR": ["1e-3", "0.001"]}}, "LR=0.001-seed0: would be the same"),
        ({"vary": {"TRAIN.CHECKPOINT_STEPS": ["0", "1"]}}, "STEPS=1-seed0: would be the same"),
        ({"vary": {"TRAIN.LR,TRAIN.EPOCHS": ["1"]}}, "1 does not contain 2 values"),
    ],
)
def test_invalid_run_is_refused_before_training(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        plan_runs(tmp_path, **{"methods": ["dwopp", "joint"], "seeds": [0]} | arguments)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were made; within this process, which saves importing torch again."""
    folders = []
    process = subprocess.run

    def run_here(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if command[0] != sys.executable:  # git
            return process(command, **options)
        folders.append(Path(command[command.index("--out") + 1]).name)
        assert command[:4] == [sys.executable, "-m", "lreid", "train"]
        monkeypatch.setattr(sys, "argv", command[2:])
        with contextlib.redirect_stderr(io.StringIO()) as errors, pytest.raises(SystemExit) as end:
            runpy.run_module("lreid", run_name="__main__")
        return subprocess.CompletedProcess(command, end.value.code, stderr=errors.getvalue())

    monkeypatch.setattr(sweep_runs.subprocess, "run", run_here)
    return folders


@pytest.mark.slow
def test_finished_runs_are_not_trained_again(tmp_path: Path, made: list[str]) -> None:
    runs = plan_runs(tmp_path, ["dwopp"], [0, 1], vary={"METHOD.TEMPERATURE": ["0.5", "20"]}, overrides=OVERRIDES)
    table, failed = sweep(runs, tmp_path, key="METHOD.TEMPERATURE")
    assert not failed and made == [run.folder.name for run in runs]
    assert "dwopp, TEMPERATURE 0.5" in table and "dwopp, TEMPERATURE 20" in table
    with open(tmp_path / "table.csv") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    values = [
        json.loads((tmp_path / f"dwopp-TEMPERATURE=0.5-seed{seed}" / "results.json").read_text()) for seed in (0, 1)
    ]
    values = [results["summary"]["seen_mAP"] for results in values]
    row = rows["dwopp, TEMPERATURE 0.5"]
    assert float(row["seen_mAP"]) == pytest.approx(statistics.fmean(values), abs=1e-3)
    assert float(row["seen_mAP_std"]) == pytest.approx(statistics.stdev(values), abs=1e-3)
    pictures = {"curves.png", "sensitivity.png"}
    assert {"table.md", "table.tex"} | pictures <= {file.name for file in tmp_path.iterdir()}

    assert sweep(runs, tmp_path) == (table, {})
    assert len(made) == len(runs)


@pytest.mark.slow
def test_failed_run_does_not_stop_the_others(tmp_path: Path, made: list[str]) -> None:
    sweep(plan_runs(tmp_path, ["dmml_ft"], [0], overrides=OVERRIDES), tmp_path)
    runs = plan_runs(tmp_path, ["dmml_ft", "joint"], [0], overrides=[*OVERRIDES, "TRAIN.LR", "5e-4"])
    table, failed = sweep(runs, tmp_path)
    assert made == ["dmml_ft-seed0", "dmml_ft-seed0", "joint-seed0"]
    (reason,) = failed.values()
    assert list(failed) == [str(tmp_path / "dmml_ft-seed0")]
    assert "TRAIN.LR" in reason and "\n" not in reason
    assert "joint" in table and "dmml_ft" not in table
    assert not (tmp_path / "sensitivity.png").exists()


@pytest.mark.slow
def test_simultaneous_runs_use_different_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run fails with its value of CUDA_VISIBLE_DEVICES; a run with a chosen device keeps all of them."""
    code = "import os; raise SystemExit(os.environ.get('CUDA_VISIBLE_DEVICES', 'all'))"
    monkeypatch.setattr(PlannedRun, "command", [sys.executable, "-c", code])
    monkeypatch.setattr(sweep_runs.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-8f")

    def given(jobs: int, **overrides: str) -> list[str]:
        pairs = [word for pair in overrides.items() for word in pair]
        runs = plan_runs(tmp_path, ["dmml_ft"], [0, 1, 2, 3], overrides=pairs)
        return list(sweep(runs, tmp_path, jobs=jobs)[1].values())

    assert set(given(1)) == {"5, GPU-8f"}
    assert set(given(2)) == {"5", "GPU-8f"}
    assert set(given(4)) == {"5", "GPU-8f"}
    assert set(given(2, DEVICE="cpu")) == {"5, GPU-8f"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert set(given(2)) == {"0", "1"}
    monkeypatch.setattr(sweep_runs.torch.cuda, "device_count", lambda: 0)
    assert set(given(2)) == {"all"}


@pytest.mark.slow
def test_simultaneous_runs_equal_single_runs_and_a_failed_run_is_named(
    run_lreid: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drawn.yaml").write_text("BENCHMARK: {NAME: drawn}")
    (tmp_path / "gone.yaml").write_text("BENCHMARK: {NAME: gone, TRAIN: ['csv:gone.csv']}")
    files = [str(tmp_path / name) for name in ("drawn.yaml", "gone.yaml")]
    options = ["--methods", "dmml_ft", "--seeds", "0", "--jobs", "2", "--benchmarks"]
    status = run_lreid("sweep", *options, *files, "--out", str(tmp_path / "out"), *ONE_TASK_EACH)
    err = capfd.readouterr().err
    *reasons, last = err.splitlines()
    assert status == 2 and last.startswith("lreid sweep: 1 of 2 runs failed")
    (reason,) = [line for line in reasons if line.startswith(str(tmp_path / "out" / "gone"))]
    assert "gone.csv" in reason and "drawn" in (tmp_path / "out" / "table.md").read_text()
    swept = json.loads((tmp_path / "out" / "drawn" / "dmml_ft-seed0" / "results.json").read_text())
    alone = train(load_config([], [*ONE_TASK_EACH, "METHOD.NAME", "dmml_ft"]), tmp_path / "alone")
    assert (swept["mAP"], swept["loss_history"]) == (alone["mAP"], alone["loss_history"])


@pytest.mark.slow
def test_runs_end_with_their_sweep_and_the_next_sweep_waits(tmp_path: Path) -> None:
    """Whether the sweep gets SIGKILL or SIGTERM."""
    keys = as_arguments(TINY, ONE_TASK, {"TRAIN.EPOCHS": 100_000, "TRAIN.CHECKPOINT_STEPS": 1})
    options = ["--methods", "dmml_ft", "--seeds", "0", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "lreid", "sweep", *options, *keys]
    run = tmp_path / "dmml_ft-seed0"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until((run / "checkpoints" / "last.pt").exists)
        assert is_busy(run)
        process.kill()
    wait_until(lambda: not is_busy(run), 120)
    assert load_newest(run / "checkpoints")

    shutil.rmtree(run)
    at_work = RunFolder(run)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert f"{run}: another process" in process.stdout.readline()
        assert process.poll() is None
        at_work.close()
        wait_until((run / "checkpoints" / "last.pt").exists)
        process.terminate()
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143 and "SIGTERM" in printed
    RunFolder(run).close()  # nobody holds it any more


def test_dry_run_prints_commands(lreid, tmp_path: Path) -> None:
    vary = ["--vary", "METHOD.ALPHA,METHOD.BETA", "0,1", "1,-1"]
    out = str(tmp_path / "out")
    options = ["--methods", "decoupled", "--seeds", "0", *vary, "--dry-run", "--out", out, "TRAIN.LR", "1e-4"]
    lines = lreid("sweep", *options).out.splitlines()
    assert len(lines) == 2 and not (tmp_path / "out").exists()
    words = shlex.split(lines[1])
    assert words[1:4] == ["-m", "lreid", "train"] and f"{out}/decoupled-ALPHA=1-BETA=-1-seed0" in words
    given = "METHOD.NAME decoupled TRAIN.LR 1e-4 METHOD.ALPHA 1 METHOD.BETA -1 SEED 0"
    assert " ".join(words[-10:]) == given


def test_config_keys_may_follow_the_seeds(lreid, tmp_path: Path) -> None:
    keys = ["--methods", "dwopp", "TRAIN.EPOCHS", "3", "--seeds", "4", "5", "TRAIN.LR", "1e-4"]
    lines = lreid("sweep", "--dry-run", "--out", tmp_path, *keys).out.splitlines()
    given = "METHOD.NAME dwopp TRAIN.EPOCHS 3 TRAIN.LR 1e-4 SEED"
    assert [" ".join(shlex.split(line)[-8:]) for line in lines] == [f"{given} {seed}" for seed in (4, 5)]


SEARCH, RATES = ["--search", "random", "--images"], ["--vary", "TRAIN.LR", "1e-4..1e-2"]
DEV = ["BENCHMARK.TRAIN", "['dev:synthetic:plaza']"]


def test_random_search_prints_seeded_draws_within_a_budget_of_images(lreid, tmp_path: Path) -> None:
    keys = as_arguments(TINY, FEW, {"BENCHMARK.TRAIN": ["dev:synthetic:plaza"]})
    vary = [*RATES, "--vary", "TRAIN.EPOCHS", "1..4", "--vary", "METHOD.MARGIN", "0.1", "0.5"]

    def drawn(budget: int, seed: int = 0) -> list[Config]:
        options = ["--methods", "bot_ft", "--seeds", seed, "7", *SEARCH, budget, *vary, "--dry-run"]
        lines = lreid("sweep", *options, "--out", tmp_path / "out", *keys).out.splitlines()
        words = [shlex.split(line) for line in lines]
        return [load_run_config([], each[each.index("METHOD.NAME") :]) for each in words]

    configs = drawn(2000)
    costs = [images_of(cfg) for cfg in configs]
    assert 1000 < sum(costs) <= 2000 and costs[::2] == costs[1::2]  # a trial has the same values for both seeds
    assert drawn(sum(costs)) == configs and drawn(sum(costs) - 1) == configs[:-2]
    assert all(1e-4 <= cfg.TRAIN.LR <= 1e-2 and 1 <= cfg.TRAIN.EPOCHS <= 4 for cfg in configs)
    assert {cfg.METHOD.MARGIN for cfg in configs} == {0.1, 0.5} and len({cfg.TRAIN.LR for cfg in configs}) > 5
    assert not {cfg.TRAIN.LR for cfg in drawn(2000, seed=1)} & {cfg.TRAIN.LR for cfg in configs}
    assert train(configs[0], tmp_path / "run")["images_trained"] == costs[0]


def test_tpe_search_draws_near_good_values_and_away_from_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mAP is highest at the rate 0.02; above 0.5, runs fail."""
    tried: list[float] = []

    def train_trial(runs: list[Any]) -> tuple[str, dict[str, str]]:
        tried.extend(float(run.folder) for run in runs)
        return "", {run.folder: "diverged" for run in runs if float(run.folder) > 0.5}

    def distance(rate: float) -> float:
        return abs(math.log(rate / 0.02))

    monkeypatch.setattr(sweep_search, "images_of", lambda cfg: 10)
    monkeypatch.setattr(sweep_search, "read_results", lambda rate: {"summary": {"seen_mAP": 9 - distance(float(rate))}})
    runs = sweep_search.search(
        "tpe",
        609,
        {"TRAIN.LR": ["1e-4..1"]},
        lambda vary: [SimpleNamespace(folder=vary["TRAIN.LR"][0], cfg=None)],
        train_trial,
        seed=0,
    )
    assert [float(run.folder) for run in runs] == tried and len(tried) == 60 and max(tried) > 0.5
    assert statistics.median(map(distance, tried[20:])) < 1.5  # of random draws about 2.3


def test_missing_optuna_is_one_line(lreid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_search, "optuna", Extra("no_such_optuna", "search"))
    done = lreid("sweep", "--methods", "dwopp", *SEARCH, "9", *RATES, *DEV, "--out", tmp_path / "out")
    assert done.status == 2 and done.err.count("\n") == 1 and "lreid[search]" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "--jobs is 0"),
        (["--seeds", "0", "1.5"], "--seeds is '1.5'"),
        (["--vary", "TRAIN.LR"], "--vary TRAIN.LR: "),
        (["--vary", "TRAIN.LR", "1", "--vary", "TRAIN.EPOCHS,TRAIN.LR", "2,3"], "--vary TRAIN.LR: "),
        (["--images", "9"], "--search and --images: "),
        ([*SEARCH, "9", "--methods", "dwopp", "er", *RATES], "--search: "),
        ([*SEARCH, "9", "--methods", "dwopp"], "--search: "),
        (["--search", "tpe", "--images", "9", "--methods", "dwopp", *RATES, "--dry-run"], "--dry-run: "),
        ([*SEARCH, "9", "--methods", "dwopp", *RATES], "BENCHMARK.TRAIN: "),
        ([*SEARCH, "9", "--methods", "dwopp", *RATES, *DEV], "--images is 9, but a trial needs 108000"),
        ([*SEARCH, "9", "--methods", "dwopp", "--vary", "TRAIN.LR", "2..1", *DEV], "--vary TRAIN.LR: "),
        ([*SEARCH, "9", "--methods", "dwopp", "--vary", "TRAIN.LR", "1..inf", *DEV], "--vary TRAIN.LR: "),
    ],
)
def test_bad_option_is_one_line(lreid, tmp_path: Path, arguments: list[str], message: str) -> None:
    status, _, err = lreid("sweep", *arguments, "--out", tmp_path / "out")
    assert status == 2 and err.startswith(f"lreid sweep: {message}") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
