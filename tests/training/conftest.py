"""A finished run, and a data set of files, that several files of tests train on."""

import csv
from pathlib import Path

import pytest
from PIL import Image
from tiny import FEW, tiny_config

from lreid.data.synthetic import draw, load_synthetic
from lreid.report.page import ReportObserver
from lreid.training.run import train


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with its report."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    train(tiny_config(FEW), out, observers={"report": ReportObserver()})
    return out


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A CSV data set of 12 training and 4 test identities in three domains."""
    folder = tmp_path / "people"
    folder.mkdir()
    rows = []
    drawn = load_synthetic(
        "plaza", train_identities=12, test_identities=12, images_per_identity=4, distractors=0, seed=0
    )
    for split in ("train", "query", "gallery"):
        pids = sorted({record.pid for record in getattr(drawn, split)})
        for number, record in enumerate(getattr(drawn, split)):
            name = f"{split}{number:03d}.png"
            Image.fromarray(draw(record.path)).save(folder / name)
            domain = "abc"[pids.index(record.pid) // 4]
            rows.append((name, f"{split == 'train'}-{record.pid}", record.camid, split, domain))
    with open(folder / "index.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "pid", "camid", "split", "domain"), *rows])
    return folder
