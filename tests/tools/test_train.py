"""The script tools/train.py: a run that was killed in the middle of a task resumes to the same metrics."""

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
def test_killed_run_resumes_to_the_same_metrics(run_tool: Callable[..., int], tmp_path: Path) -> None:
    def run(out: str, *more: str) -> int:
        return fork_process(partial(run_tool, "train.py", "--out", str(tmp_path / out), *more))

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
