"""The commands of a user with data, from training to the zoo, with ResNet-50 on a small tree in each layout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny import as_arguments, train_interrupted

import lreid
from lreid.apps.checkpoint_test import score_checkpoints
from lreid.apps.publishing import publish
from lreid.config import load_config
from lreid.models.fingerprint import fingerprint
from lreid.training.run import train

TRAINED, TESTED = range(1, 5), (11, 12)  # identities; each has an image of each camera
MARKET = ("market1501", ("bounding_box_train", "query", "bounding_box_test"), "{pid:04d}_c{camid}s1_000151_01.jpg")
VERI = ("veri", ("image_train", "image_query", "image_test"), "{pid:04d}_c{camid:03d}_00016450_0.jpg")
SYSU = ("cuhksysu4reid", ("train", "query", "gallery"), "{pid:05d}_s{camid:05d}_0000003_0.jpg")
MSMT = "{pid:04d}/{pid:04d}_000_{camid:02d}_0303morning_0015_0.jpg"
TREES = {
    "market1501-10": [MARKET],
    "msmt17v1-10": [("msmt17/MSMT17_V1", ("train", "test", "test"), MSMT)],
    "msmt17v2-10": [("msmt17/MSMT17_V2", ("mask_train_v2", "mask_test_v2", "mask_test_v2"), MSMT)],
    "veri776-10": [VERI],
    "lreid-order1": [MARKET, SYSU],
}
FAST = {
    "METHOD.NAME": "dwopp",
    "MODEL.WEIGHTS": "none",
    "DEVICE": "cpu",
    "DATA.CACHE_GIB": 0,
    "EPISODE.IDENTITIES": 2,
    "EPISODE.SUPPORT": 1,
    "TRAIN.EPOCHS": 1,
    "EVAL.FLIP": False,
}


def plant(root: Path, name: str, folders: tuple[str, str, str], form: str) -> None:
    """Writes a data set: coarse patterns of identities, darker in the first camera; MSMT17 with its lists."""
    cameras = (1, 2, 3, 4) if "sysu" in name else (1, 2)  # the order takes people of CUHK-SYSU with four images or more
    images = [("train", folders[0], pid, camid) for pid in TRAINED for camid in cameras]
    images += [(split, folders[at], pid, at) for at, split in ((1, "query"), (2, "gallery")) for pid in TESTED]
    for split, folder, pid, camid in images:
        file = root / name / folder / form.format(pid=pid, camid=camid)
        file.parent.mkdir(parents=True, exist_ok=True)
        pattern = np.random.default_rng(pid).integers(0, 150, (4, 2, 3), np.uint8) + np.uint8(25 * camid)
        Image.fromarray(pattern).resize((64, 128), Image.Resampling.NEAREST).save(file)
        if form is MSMT:
            with open(root / name / f"list_{split}.txt", "a") as lines:
                print(form.format(pid=pid, camid=camid), pid, file=lines)
    if form is MSMT:
        (root / name / "list_val.txt").write_text("")


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", TREES)
def test_train_test_and_publish_on_each_directory_layout(
    benchmark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tree in TREES[benchmark]:
        plant(tmp_path / "data", *tree)
    names = {"BENCHMARK.TRAIN": ["market1501", "cuhk_sysu_sub"], "BENCHMARK.UNSEEN": []}
    tasks = names if "order" in benchmark else {"BENCHMARK.TASKS_PER_DATASET": 2}
    keys = {"DATA.ROOT": tmp_path / "data"}
    cfg = load_config([f"benchmarks/{benchmark}"], as_arguments(FAST, tasks, keys), report=False)
    assert cfg.MODEL.BACKBONE == "resnet50"
    assert cfg.INPUT.HEIGHT * cfg.INPUT.WIDTH >= 256 * 128
    run, zoo = tmp_path / "run", tmp_path / "zoo"

    train_interrupted(cfg, run, epochs=1)  # in the second task
    results = train(cfg, run, resume=True)
    assert (len(results["loss_history"]), len(results["mAP"])) == (2, 2)  # of every epoch, of every task
    assert (results["config"]["EVAL.BACKEND"], results["config"]["EVAL.INDEX"]) == ("faiss", "flat")

    tested = score_checkpoints([run / "checkpoints" / "task-02.pt"], tmp_path / "test")
    assert [row["mAP"] for row in tested["rows"]] == pytest.approx(results["mAP"][-1])

    assert publish(run, "mine", licence="research-only", folder=zoo).licence == "research-only"
    monkeypatch.setenv("LREID_ZOO_CARDS", str(zoo))
    trained = lreid.load_model(run / "checkpoints" / "task-02.pt")
    assert fingerprint(lreid.load_model("zoo:mine")) == fingerprint(trained)


@pytest.mark.slow
def test_example_script_trains_tests_and_publishes(repository: Path, tmp_path: Path) -> None:
    plant(tmp_path / "data", *MARKET)
    (tmp_path / "lreid").write_text(f'#!/bin/sh\nexec {sys.executable} -m lreid "$@"\n')
    (tmp_path / "lreid").chmod(0o755)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    small = {"MODEL.BACKBONE": "small", "INPUT.HEIGHT": 64, "INPUT.WIDTH": 32}
    steps = {"BENCHMARK.TASKS_PER_DATASET": 2, "TRAIN.EPOCHS": 2}
    command = ["sh", str(repository / "examples/from_market.sh"), "data", "mine", *as_arguments(FAST, small, steps)]
    run = tmp_path / "runs/mine"

    done = subprocess.run(command, cwd=tmp_path, env=os.environ | places, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ranked by faiss-flat" in done.stdout
    trained = json.loads((run / "results.json").read_text())["mAP"][-1]
    for folder in (run / "test", tmp_path / "mine-test"):  # of the run, and of the model by name
        tested = json.loads((folder / "market1501-10/test.json").read_text())
        assert tested["rows"][-1]["mAP"] == pytest.approx(trained[0])
    card = json.loads((tmp_path / "runs/zoo/mine.json").read_text())
    assert card["licence"] == "research-only"
