"""examples/from_market.sh: from training on Market-1501's layout to a model of the zoo."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny import as_arguments

SMALL = {
    "METHOD.NAME": "dwopp",
    "MODEL.BACKBONE": "small",
    "MODEL.WEIGHTS": "none",
    "INPUT.HEIGHT": 64,
    "INPUT.WIDTH": 32,
    "DEVICE": "cpu",
    "EPISODE.IDENTITIES": 2,
    "EPISODE.SUPPORT": 1,
    "BENCHMARK.TASKS_PER_DATASET": 2,
    "TRAIN.EPOCHS": 2,
    "EVAL.FLIP": False,
}


def write_market(root: Path) -> None:
    """Write coarse patterns of identities, darker in the first camera."""
    images = [("bounding_box_train", pid, camid) for pid in range(1, 5) for camid in (1, 2)]
    images += [(folder, pid, camid) for camid, folder in ((1, "query"), (2, "bounding_box_test")) for pid in (11, 12)]
    for folder, pid, camid in images:
        (root / "market1501" / folder).mkdir(parents=True, exist_ok=True)
        pattern = np.random.default_rng(pid).integers(0, 150, (4, 2, 3), np.uint8) + np.uint8(25 * camid)
        image = Image.fromarray(pattern).resize((64, 128), Image.Resampling.NEAREST)
        image.save(root / "market1501" / folder / f"{pid:04d}_c{camid}s1_000151_01.jpg")


@pytest.mark.slow
def test_example_script_trains_tests_and_publishes(repository: Path, tmp_path: Path) -> None:
    write_market(tmp_path / "data")
    (tmp_path / "lreid").write_text(f'#!/bin/sh\nexec {sys.executable} -m lreid "$@"\n')
    (tmp_path / "lreid").chmod(0o755)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["sh", str(repository / "examples/from_market.sh"), "data", "mine", *as_arguments(SMALL)]
    run = tmp_path / "runs/mine"

    done = subprocess.run(command, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ranked by faiss-flat" in done.stdout
    trained = json.loads((run / "results.json").read_text())
    assert (trained["config"]["EVAL.BACKEND"], trained["config"]["EVAL.INDEX"]) == ("faiss", "flat")
    for folder in (run / "test", tmp_path / "mine-test"):  # of the run, and of the model by name
        tested = json.loads((folder / "market1501-10/test.json").read_text())
        assert tested["rows"][-1]["mAP"] == pytest.approx(trained["mAP"][-1][0])
    card = json.loads((tmp_path / "runs/zoo/mine.json").read_text())
    assert card["licence"] == "research-only"
