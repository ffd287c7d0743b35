"""What is wrong with a command line is said before torch is imported, which takes seconds."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from lreid.zoo.card import BUNDLED

WRONG = """train nofolder
train --config nofile.yaml
train METHOD.NAME bad
train TRAIN.EPOCHS -1
train --epoch 3
train . --from nope
test
test --query .
test --checkpoint no.pt
test --checkpoint EVAL.AP trapezoidal
test --checkpoint zoo:people --query . --gallery . --csv no.csv
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
test --checkpoint damaged.pt
test --checkpoint text.pt
test --checkpoint zoo:people DEVICE gpu
train DEVICE cuda:x
train . --device gpu
search query . . --device CUDA
search build g . --checkpoint people-small-be5c637c2104.safetensors
link add x . --device cuda0
serve . --device gpu
serve . --max-mb 0
serve . --host 0.0.0.0 --port 0
export nope --out x.onnx
zoo show nope
train . --pattern x
test --checkpoint zoo:people --query . --gallery . --pattern x
link add x damaged.pt
link add text.pt damaged.pt --checkpoint zoo:people
sweep --out text.pt
report . --html text.pt/x.html
zoo publish . model --licence MIT --out text.pt
zoo page --out text.pt/x.md
export zoo:people --out text.pt/x.onnx"""


def test_bad_input_is_refused_without_torch(tmp_path: Path, repository: Path) -> None:
    with zipfile.ZipFile(tmp_path / "damaged.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"0123456789")
    content = (tmp_path / "damaged.pt").read_bytes()
    (tmp_path / "damaged.pt").write_bytes(content.replace(b"345", b"543"))
    (tmp_path / "text.pt").write_text("no checkpoint")
    shutil.copy(BUNDLED / "people-small.json", tmp_path)
    weights = next(BUNDLED.glob("people-small*.safetensors"))
    (tmp_path / weights.name).write_bytes(weights.read_bytes()[:-1])
    before = sorted(tmp_path.iterdir())
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
    assert sorted(tmp_path.iterdir()) == before
