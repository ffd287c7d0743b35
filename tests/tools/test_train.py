"""The command line of training: exit status, messages, and a kill in the middle of a task."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from processes import start, until, wait
from tiny import FEW, TINY, words

ARGUMENTS = words(TINY, FEW, {"TRAIN.EPOCHS": 8})


@pytest.mark.slow
def test_killed_in_the_middle_of_a_task_it_ends_with_the_same_figures(tool: Callable[..., int], tmp_path: Path) -> None:
    def run(out: str, *more: str) -> int:
        return start(partial(tool, "train.py", "--out", str(tmp_path / out), *more))

    assert wait(run("whole", *ARGUMENTS)) == 0
    killed = run("killed", *ARGUMENTS)
    checkpoints = tmp_path / "killed" / "checkpoints"
    until(lambda: all((checkpoints / name).exists() for name in ("task-01.pt", "last.pt")))
    os.kill(killed, signal.SIGKILL)
    assert wait(killed) == -signal.SIGKILL
    assert not (checkpoints / "task-03.pt").exists()  # in the middle of a task
    assert wait(run("killed", "--resume")) == 0  # takes the config of the run
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed"))
    for key in ("mAP", "rank1", "rank5", "rank10", "identity_ap", "summary", "loss_history"):
        assert whole[key] == resumed[key], key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TRAIN.EPOCH", "3"], "train.py: command line: unknown key TRAIN.EPOCH; the nearest name is TRAIN.EPOCHS"),
        (["--config", "gone.yaml"], "train.py: gone.yaml: no such config file"),
        (["--resume", "--out", "gone"], "train.py: gone: contains no run to resume; pass the run's folder as --out"),
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(
    tool: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert tool("train.py", *arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == 1
