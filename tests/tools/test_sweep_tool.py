"""The command line of a sweep: processes side by side, a run that fails, and a dry run."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from processes import PATIENCE, wait_until
from tiny import ONE_TASK, TINY, as_arguments

from lreid.checkpoint import load_newest
from lreid.config import load_config
from lreid.training.run import train
from lreid.training.run_folder import RunFolder, is_busy

ARGUMENTS = as_arguments(TINY, ONE_TASK)


@pytest.fixture
def run(run_tool: Callable[..., int]) -> Callable[..., int]:
    """Sweeps within this process; the runs have processes of their own."""
    return partial(run_tool, "sweep.py")


@pytest.mark.slow
def test_two_at_once_give_the_figures_of_training_alone_and_a_failure_is_named(
    run: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drawn.yaml").write_text("BENCHMARK: {NAME: drawn}")
    (tmp_path / "gone.yaml").write_text("BENCHMARK: {NAME: gone, TRAIN: ['csv:gone.csv']}")
    files = [str(tmp_path / name) for name in ("drawn.yaml", "gone.yaml")]
    options = ["--methods", "dmml_ft", "--seeds", "0", "--jobs", "2", "--benchmarks"]
    status = run(*options, *files, "--out", str(tmp_path / "out"), *ARGUMENTS)
    err = capfd.readouterr().err
    *reasons, last = err.splitlines()
    assert status == 2 and last.startswith("sweep.py: 1 of 2 runs failed")
    (reason,) = [line for line in reasons if line.startswith(str(tmp_path / "out" / "gone"))]
    assert "gone.csv" in reason and "drawn" in (tmp_path / "out" / "table.md").read_text()
    swept = json.loads((tmp_path / "out" / "drawn" / "dmml_ft-seed0" / "results.json").read_text())
    alone = train(load_config([], [*ARGUMENTS, "METHOD.NAME", "dmml_ft"]), tmp_path / "alone")
    assert (swept["mAP"], swept["loss_history"]) == (alone["mAP"], alone["loss_history"])


@pytest.mark.slow
def test_the_runs_of_a_sweep_end_with_it_and_the_next_one_waits_for_their_folders(
    repository: Path, tmp_path: Path
) -> None:
    """Whether the sweep is killed or told to stop."""
    keys = as_arguments(TINY, ONE_TASK, {"TRAIN.EPOCHS": 100_000, "TRAIN.CHECKPOINT_STEPS": 1})
    options = ["--methods", "dmml_ft", "--seeds", "0", "--out", str(tmp_path)]
    command = [sys.executable, str(repository / "tools" / "sweep.py"), *options, *keys]
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
        assert f"{run}: another process is using this folder; waiting" in process.stdout.readline()
        assert process.poll() is None
        at_work.close()
        wait_until((run / "checkpoints" / "last.pt").exists)
        process.terminate()
        told, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143 and "stopped by SIGTERM; everything is saved" in told
    RunFolder(run).close()  # nobody holds it any more


def test_a_dry_run_prints_commands(run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vary = ["--vary", "METHOD.ALPHA,METHOD.BETA", "0,1", "1,-1"]
    out = str(tmp_path / "out")
    status = run("--methods", "decoupled", "--seeds", "0", *vary, "--dry-run", "--out", out, "TRAIN.LR", "1e-4")
    lines = capsys.readouterr().out.splitlines()
    assert status == 0 and len(lines) == 2 and not (tmp_path / "out").exists()
    words = shlex.split(lines[1])
    assert words[1:4] == ["-m", "lreid", "train"] and f"{out}/decoupled-ALPHA=1-BETA=-1-seed0" in words
    given = "METHOD.NAME decoupled TRAIN.LR 1e-4 METHOD.ALPHA 1 METHOD.BETA -1 SEED 0"
    assert " ".join(words[-10:]) == given


def test_config_keys_may_follow_the_seeds(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ["--methods", "dwopp", "TRAIN.EPOCHS", "3", "--seeds", "4", "5", "TRAIN.LR", "1e-4"]
    assert run("--dry-run", "--out", str(tmp_path), *keys) == 0
    lines = capsys.readouterr().out.splitlines()
    given = "METHOD.NAME dwopp TRAIN.EPOCHS 3 TRAIN.LR 1e-4 SEED"
    assert [" ".join(shlex.split(line)[-8:]) for line in lines] == [f"{given} {seed}" for seed in (4, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "--jobs 0: must be 1 or more"),
        (["--seeds", "0", "1.5"], "--seeds 1.5: must be a whole number, 0 or more"),
        (["--vary", "TRAIN.LR"], "--vary TRAIN.LR: has no values"),
        (["--vary", "TRAIN.LR", "1", "--vary", "TRAIN.EPOCHS,TRAIN.LR", "2,3"], "--vary TRAIN.LR: is given 2 times"),
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(
    run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(*arguments, "--out", str(tmp_path / "out")) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"sweep.py: {message}") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
