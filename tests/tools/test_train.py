"""The script tools/train.py: a run that was killed in the middle of a task resumes to the same metrics."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE, wait_until
from tiny import TINY, as_arguments

SCRIPT = Path(__file__).parents[2] / "tools" / "train.py"
ARGUMENTS = as_arguments(TINY, {"TRAIN.EPOCHS": 8})


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_metrics(tmp_path: Path) -> None:
    def start(out: str, *more: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, str(SCRIPT), "--out", str(tmp_path / out), *more])

    assert start("whole", *ARGUMENTS).wait(PATIENCE) == 0
    killed = start("killed", *ARGUMENTS)
    checkpoints = tmp_path / "killed" / "checkpoints"
    wait_until(lambda: all((checkpoints / name).exists() for name in ("task-01.pt", "last.pt")))
    killed.kill()
    assert killed.wait(PATIENCE) == -signal.SIGKILL
    assert not (checkpoints / "task-03.pt").exists()  # in the middle of a task
    assert start("killed", "--resume").wait(PATIENCE) == 0  # takes the config of the run
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed"))
    for key in ("mAP", "rank1", "rank5", "rank10", "identity_ap", "summary", "loss_history"):
        assert whole[key] == resumed[key], key
