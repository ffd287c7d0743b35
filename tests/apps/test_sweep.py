"""A sweep plans what it is asked for, makes each run once, and tells means and spreads."""

import contextlib
import csv
import io
import json
import runpy
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import FEW, ONE_TASK, TINY, as_arguments

from lreid.apps import sweep_runs
from lreid.apps.report import read_runs
from lreid.apps.sweep import without_pairs
from lreid.apps.sweep_runs import PlannedRun, plan, sweep
from lreid.errors import InputError

OVERRIDES = as_arguments(TINY, FEW, ONE_TASK)


def names(runs: list[PlannedRun], out: Path) -> list[str]:
    return [str(run.folder.relative_to(out)) for run in runs]


def test_every_method_meets_every_seed_the_first_seed_first(tmp_path: Path) -> None:
    runs = plan(tmp_path, ["joint", "dwopp"], [0, 3])
    assert names(runs, tmp_path) == ["joint-seed0", "dwopp-seed0", "joint-seed3", "dwopp-seed3"]
    assert [(run.cfg.METHOD.ALIAS, run.cfg.SEED) for run in runs][1:3] == [("", 0), ("joint", 3)]


def test_every_value_meets_every_other_and_keys_may_go_together(tmp_path: Path) -> None:
    vary = {"METHOD.ALPHA,METHOD.BETA": ["0,1", "1,-1"], "TRAIN.LR": ["1e-3", "1e-4"]}
    runs = plan(tmp_path, ["decoupled"], [0], vary=vary, overrides=["TRAIN.LR", "5", "METHOD.TEMPERATURE", "2"])
    assert names(runs, tmp_path) == [
        "decoupled-ALPHA=0-BETA=1-LR=1e-3-seed0",
        "decoupled-ALPHA=0-BETA=1-LR=1e-4-seed0",
        "decoupled-ALPHA=1-BETA=-1-LR=1e-3-seed0",
        "decoupled-ALPHA=1-BETA=-1-LR=1e-4-seed0",
    ]
    last = runs[-1].cfg
    assert (last.METHOD.ALPHA, last.METHOD.BETA, last.METHOD.TEMPERATURE, last.TRAIN.LR) == (1, -1, 2, 1e-4)


def test_pairs_may_stand_behind_options_of_several_words() -> None:
    methods, one, two = ["dwopp", "joint"], ["TRAIN.LR", "1", "2"], ["METHOD.ALPHA,METHOD.BETA", "0,1", "1,-1"]
    pairs = ["TRAIN.EPOCHS", "6", "METHOD.TEMPERATURE", "1.0"]
    assert without_pairs([methods, one, two]) == ([methods, one, two], [])
    assert without_pairs([methods + pairs[:2], one, two + pairs[2:]]) == ([methods, one, two], pairs)


def test_folder_names_tell_keys_of_one_name_apart_and_hold_no_slashes(tmp_path: Path) -> None:
    vary = {"METHOD.METRIC": ["cosine"], "BENCHMARK.TRAIN": ["['csv:a/b.csv']"]}
    assert names(plan(tmp_path, ["dwopp"], [0], vary=vary), tmp_path) == [
        "dwopp-METHOD.METRIC=cosine-TRAIN=_csv_a_b.csv_-seed0"
    ]


def test_several_benchmarks_are_a_level_of_folders(tmp_path: Path, repository: Path) -> None:
    common = repository / "configs" / "benchmarks" / "synthetic-10.yaml"
    short, long = tmp_path / "short.yaml", tmp_path / "long.yaml"
    short.write_text("TRAIN: {EPOCHS: 2}")
    long.write_text("TRAIN: {EPOCHS: 200}")
    runs = plan(tmp_path, ["dwopp"], [0], files=[common], benchmarks=[short, long])
    assert names(runs, tmp_path) == ["short/dwopp-seed0", "long/dwopp-seed0"]
    assert [run.cfg.TRAIN.EPOCHS for run in runs] == [2, 200]
    assert names(plan(tmp_path, ["dwopp"], [0], benchmarks=[long]), tmp_path) == ["dwopp-seed0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": ["METHOD.TEMPERATURE", "2.0"]}, "METHOD.TEMPERATURE is no option of dmml_ft"),
        ({"vary": {"METHOD.TEMPERATURE": ["1", "2"]}}, "METHOD.TEMPERATURE is no option of dmml_ft"),
        (
            {"methods": ["dwopp"], "vary": {"METHOD.TEMPERATURE": ["1", "0"]}},
            "METHOD.TEMPERATURE is 0; it must be above 0",
        ),
        ({"overrides": ["TRAIN.EPOCHS", "0"]}, "TRAIN.EPOCHS is 0"),
        ({"overrides": ["SEED", "1"]}, "SEED: set it with --seeds"),
        ({"vary": {"METHOD.NAME": ["joint"]}}, "METHOD.NAME: set it with --methods"),
        ({"methods": ["jiont"]}, "METHOD.NAME 'jiont' is no method"),
        ({"seeds": [0, 0]}, "dwopp-seed0: would contain 2 runs"),
        ({"vary": {"TRAIN.LR": ["1e-3", "0.001"]}}, "LR=0.001-seed0: would be the same run as"),
        ({"vary": {"TRAIN.CHECKPOINT_STEPS": ["0", "1"]}}, "STEPS=1-seed0: would be the same run as"),
        ({"vary": {"TRAIN.LR,TRAIN.EPOCHS": ["1"]}}, "1 does not contain 2 values"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, **{"methods": ["dwopp", "joint"], "seeds": [0]} | arguments)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_keys_that_are_younger_than_a_run_stand_at_their_defaults(tmp_path: Path) -> None:
    results = {"schema": 1, "method": "dwopp", "benchmark": "synthetic-10", "seed": 0, "ap": "rectangular"}
    galleries = [{"name": "plaza", "kind": "seen", "first_task": 0}]
    results |= {"tasks": ["a"], "galleries": galleries, "mAP": [], "rank1": [], "summary": {}}
    known = {"TRAIN.LR": 5.0, "METHOD.NAME": "dwopp", "DATA.ROOT": "here", "GONE.KEY": 1}
    folders = []
    for number, config in enumerate((known, {"METHOD.TEMPERATURE": 2.0}, None)):
        folders.append(tmp_path / str(number))
        folders[-1].mkdir()
        (folders[-1] / "results.json").write_text(json.dumps(results | ({"config": config} if config else {})))
    old, young, none = (run.get("config") for run in read_runs(folders))
    assert none is None
    assert (old["TRAIN.LR"], old["TRAIN.EPOCHS"], old["METHOD.TEMPERATURE"]) == (5.0, 30, 1.0)
    assert young["METHOD.TEMPERATURE"] == 2.0 and old.keys() - young.keys() == {"GONE.KEY"}
    assert old["GONE.KEY"] == 1 and not {"SEED", "DATA.ROOT"} & set(old)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were made; within this process, which saves importing torch again."""
    folders = []
    process = sweep_runs.subprocess.Popen

    class Here(contextlib.nullcontext):
        def __init__(self, command: list[str]) -> None:
            super().__init__(self)
            folders.append(Path(command[command.index("--out") + 1]).name)
            assert command[:4] == [sys.executable, "-m", "lreid", "train"]
            monkeypatch.setattr(sys, "argv", command[2:])
            with contextlib.redirect_stderr(io.StringIO()) as self.told, pytest.raises(SystemExit) as end:
                runpy.run_module("lreid", run_name="__main__")
            self.returncode = end.value.code

        def communicate(self) -> tuple[None, str]:
            return None, self.told.getvalue()

    def started(command: list[str], **options: Any) -> Any:
        return Here(command) if command[0] == sys.executable else process(command, **options)  # git

    monkeypatch.setattr(sweep_runs.subprocess, "Popen", started)
    return folders


@pytest.mark.slow
def test_runs_are_made_once_and_compared(tmp_path: Path, made: list[str]) -> None:
    runs = plan(tmp_path, ["dwopp"], [0, 1], vary={"METHOD.TEMPERATURE": ["0.5", "20"]}, overrides=OVERRIDES)
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
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path, made: list[str]) -> None:
    sweep(plan(tmp_path, ["dmml_ft"], [0], overrides=OVERRIDES), tmp_path)
    runs = plan(tmp_path, ["dmml_ft", "joint"], [0], overrides=[*OVERRIDES, "TRAIN.LR", "5e-4"])
    table, failed = sweep(runs, tmp_path)
    assert made == ["dmml_ft-seed0", "dmml_ft-seed0", "joint-seed0"]
    (reason,) = failed.values()
    assert list(failed) == [str(tmp_path / "dmml_ft-seed0")]
    assert "was trained with another config: TRAIN.LR differ" in reason and "\n" not in reason
    assert "joint" in table and "dmml_ft" not in table
    assert not (tmp_path / "sensitivity.png").exists()


@pytest.mark.slow
def test_each_run_at_a_time_has_a_gpu_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two GPUs; runs fail with what they were given. Nobody is moved who has asked for one device."""
    told = "import os; raise SystemExit(os.environ.get('CUDA_VISIBLE_DEVICES', 'all'))"
    monkeypatch.setattr(PlannedRun, "command", [sys.executable, "-c", told])
    monkeypatch.setattr(sweep_runs.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-8f")

    def given(jobs: int, **overrides: str) -> list[str]:
        pairs = [word for pair in overrides.items() for word in pair]
        runs = plan(tmp_path, ["dmml_ft"], [0, 1, 2, 3], overrides=pairs)
        return list(sweep(runs, tmp_path, jobs=jobs)[1].values())

    assert set(given(1)) == {"5, GPU-8f"}
    assert set(given(2)) == {"5", "GPU-8f"}
    assert set(given(4)) == {"5", "GPU-8f"}
    assert set(given(2, DEVICE="cpu")) == {"5, GPU-8f"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert set(given(2)) == {"0", "1"}
    monkeypatch.setattr(sweep_runs.torch.cuda, "device_count", lambda: 0)
    assert set(given(2)) == {"all"}
