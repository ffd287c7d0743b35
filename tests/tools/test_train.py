"""The command line of training: exit status, messages, and a kill in the middle of a task."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TINY = """\
SYNTHETIC.TRAIN_IDENTITIES 12 SYNTHETIC.TEST_IDENTITIES 6 SYNTHETIC.IMAGES_PER_IDENTITY 4 SYNTHETIC.DISTRACTORS 3
BENCHMARK.TASKS_PER_DATASET 2 EPISODE.IDENTITIES 3 EPISODE.SUPPORT 2 INPUT.HEIGHT 32 INPUT.WIDTH 16
TRAIN.EPOCHS 40 TRAIN.CHECKPOINT_MINUTES 0""".split()


@pytest.fixture
def command(repository: Path) -> list[str]:
    return [sys.executable, str(repository / "tools" / "train.py")]


def test_killed_in_the_middle_of_a_task_it_ends_with_the_same_figures(command: list[str], tmp_path: Path) -> None:
    def run(out: str, *more: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*command, "--out", str(tmp_path / out), *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    assert run("whole", *TINY).wait(300) == 0
    killed = run("killed", *TINY)
    checkpoints = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 300
    while not ((checkpoints / "task-01.pt").exists() and (checkpoints / "last.pt").exists()):
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait(60) == -signal.SIGKILL
    assert not (checkpoints / "task-02.pt").exists()  # in the middle of the second task
    assert run("killed", "--resume").wait(300) == 0  # takes the config of the run
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed"))
    for key in ("mAP", "rank1", "rank5", "rank10", "identity_ap", "summary", "loss_history"):
        assert whole[key] == resumed[key], key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["TRAIN.EPOCH", "3"], "train.py: command line: unknown key TRAIN.EPOCH; the nearest known one is TRAIN.EPOCHS"),
        (["--config", "gone.yaml"], "train.py: gone.yaml: no such config file"),
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(
    command: list[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith(message) and done.stderr.count("\n") == 1
