"""The command line of training: exit status, messages, and a kill in the middle of a task."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from processes import fork_process, wait_for_exit, wait_until
from tiny import FEW, TINY, as_arguments

ARGUMENTS = as_arguments(TINY, FEW, {"TRAIN.EPOCHS": 8})


@pytest.mark.slow
def test_killed_in_the_middle_of_a_task_it_ends_with_the_same_figures(tool: Callable[..., int], tmp_path: Path) -> None:
    def run(out: str, *more: str) -> int:
        return fork_process(partial(tool, "train.py", "--out", str(tmp_path / out), *more))

    assert wait_for_exit(run("whole", *ARGUMENTS)) == 0
    killed = run("killed", *ARGUMENTS)
    checkpoints = tmp_path / "killed" / "checkpoints"
    wait_until(lambda: all((checkpoints / name).exists() for name in ("task-01.pt", "last.pt")))
    os.kill(killed, signal.SIGKILL)
    assert wait_for_exit(killed) == -signal.SIGKILL
    assert not (checkpoints / "task-03.pt").exists()  # in the middle of a task
    assert wait_for_exit(run("killed", "--resume")) == 0  # takes the config of the run
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed"))
    for key in ("mAP", "rank1", "rank5", "rank10", "identity_ap", "summary", "loss_history"):
        assert whole[key] == resumed[key], key


def test_a_folder_without_a_run_is_not_resumed(tool: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert tool("train.py", "--resume", "--out", "gone") == 2
    err = capsys.readouterr().err
    assert err.startswith("train.py: gone: contains no run to resume; pass the run's folder as --out")
    assert err.count("\n") == 1
