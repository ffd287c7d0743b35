"""What is wrong with a command line is said before torch is imported, which takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WRONG = """train nofolder
train --config nofile.yaml
train METHOD.NAME bad
train TRAIN.EPOCHS -1
train --epoch 3
train . --from nope
test
test --query .
test --checkpoint no.pt
test --checkpoint zoo:nope
test --checkpoint zoo:people EVAL.NOPE 1
test --checkpoint zoo:people --query . --gallery nofolder
test --checkpoint zoo:people --csv no.csv
sweep --out x --methods nope
sweep --out x --methods dwopp TRAIN.LR
report nofolder
data check nofolder
search build g nofolder --checkpoint zoo:people
search build g . --checkpoint no.pt
search query nofile .
search check g --new no.pt --images .
search compare a.jpg b.jpg
link add x no.yaml
link undo nofolder
serve nofile
export nope --out x.onnx
zoo show nope"""


def test_bad_input_is_refused_without_torch(tmp_path: Path, repository: Path) -> None:
    code = """
import contextlib, json, sys
sys.modules["torch"] = None
sys.path.insert(0, sys.argv[2])
from lreid.apps.cli import run_command
def status(command, *words):
    try:
        return run_command(command, words)
    except SystemExit as end:
        return end.code
    except ImportError as error:
        return str(error)
print(json.dumps({line: status(*line.split()) for line in sys.argv[1].splitlines()}))
"""
    words = [sys.executable, "-c", code, WRONG, str(repository)]
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=True)
    assert json.loads(done.stdout) == dict.fromkeys(WRONG.splitlines(), 2)
    assert len(done.stderr.splitlines()) == len(WRONG.splitlines()) + sum(map(done.stderr.count, ("usage", "\n  ")))
    assert not list(tmp_path.iterdir())
