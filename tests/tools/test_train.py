"""The command line of training: exit status, messages, and a kill in the middle of a task."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import PATIENCE, until
from tiny import TINY

ARGUMENTS = [str(part) for pair in (TINY | {"TRAIN.EPOCHS": 16}).items() for part in pair]


@pytest.fixture
def command(repository: Path) -> list[str]:
    return [sys.executable, str(repository / "tools" / "train.py")]


@pytest.mark.slow
def test_killed_in_the_middle_of_a_task_it_ends_with_the_same_figures(command: list[str], tmp_path: Path) -> None:
    def run(out: str, *more: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*command, "--out", str(tmp_path / out), *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    assert run("whole", *ARGUMENTS).wait(PATIENCE) == 0
    killed = run("killed", *ARGUMENTS)
    checkpoints = tmp_path / "killed" / "checkpoints"
    until(lambda: all((checkpoints / name).exists() for name in ("task-01.pt", "last.pt")) or killed.poll() is not None)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait(PATIENCE) == -signal.SIGKILL
    assert not (checkpoints / "task-03.pt").exists()  # in the middle of a task
    assert run("killed", "--resume").wait(PATIENCE) == 0  # takes the config of the run
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed"))
    for key in ("mAP", "rank1", "rank5", "rank10", "identity_ap", "summary", "loss_history"):
        assert whole[key] == resumed[key], key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["TRAIN.EPOCH", "3"],
            "train.py: command line: unknown key TRAIN.EPOCH; the nearest known one is TRAIN.EPOCHS",
        ),
        (["--config", "gone.yaml"], "train.py: gone.yaml: no such config file"),
        (["--resume", "--out", "gone"], "train.py: gone: holds no run to resume; name its folder with --out"),
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(
    tool: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert tool("train.py", *arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == 1
