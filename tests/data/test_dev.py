"""dev:NAME holds out a share of the training split, and never reads the test split."""

import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lreid.apps.cli import run_command
from lreid.data.datasets import Sources, load_datasets
from lreid.data.dev import dev_split
from lreid.data.records import DataSet, Frame, Record
from lreid.errors import InputError


def market(root, people, cameras=(1, 2, 3), number=2):
    """The training half of Market-1501 alone."""
    folder = root / "market1501/bounding_box_train"
    folder.mkdir(parents=True)
    for pid in people:
        for camera in cameras:
            for image in range(number):
                pixels = np.random.default_rng([pid, camera, image]).integers(0, 256, (16, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{pid:04d}_c{camera}s1_{image:06d}_00.jpg")
    return root


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=80),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
)
def test_the_drawn_identities_are_tested_and_the_others_trained(images, share, seed):
    train = tuple(Record(f"{i:03d}", pid, camera) for i, (pid, camera) in enumerate(images))
    people = sorted({record.pid for record in train})
    tested = set(random.Random(seed).sample(people, -int(-share * len(people) // 1)))
    query, gallery = [], []
    for pid in tested:
        own = [record for record in train if record.pid == pid]
        first = [record for i, record in enumerate(own) if record.camid not in [each.camid for each in own[:i]]]
        first = first if len(first) < len(own) else first[:1]
        query += first
        gallery += [record for record in own if record not in first]
    official = (Record("never", 99, 1),)
    data_set = DataSet("x", train, official, official, tracks=(1,), single_shot=True)
    if len(tested) == len(people) or not gallery:
        with pytest.raises(InputError, match="dev:x"):
            dev_split(data_set, Sources(dev_share=share, split_seed=seed))
        return
    split = dev_split(data_set, Sources(dev_share=share, split_seed=seed))
    assert split.name == "x-dev"
    assert split.train == tuple(record for record in train if record.pid not in tested)
    assert (sorted(split.query), sorted(split.gallery)) == (sorted(query), sorted(gallery))
    assert (split.tracks, split.single_shot, split.held_out) == ((), False, ())


def test_tracklets_stay_whole_and_unknown_cameras_follow_the_policy():
    train = [
        Frame(f"{pid}-{track}-{n}", pid, 1, tracklet=10 * pid + track)
        for pid in (1, 2)
        for track in (0, 1)
        for n in (0, 1)
    ]
    split = dev_split(DataSet("x", tuple(train), (), (), tracklets=True), Sources(dev_share=0.5))
    first = split.query[0].tracklet
    assert [record.tracklet for record in split.query] == [first, first]
    assert [record.tracklet for record in split.gallery] == [first + 1, first + 1]
    unknown = tuple(Record(f"{pid}{n}", pid, 0) for pid in (1, 2) for n in (0, 1))
    for policy, camera in (("apart", 1), ("same", 0)):
        split = dev_split(DataSet("x", unknown, (), (), has_cameras=False), Sources(dev_share=0.5, cameras=policy))
        assert (split.query[0].camid, split.gallery[0].camid) == (0, camera)


def test_each_class_loses_the_same_share_of_its_images():
    train = tuple(Record(f"{pid}/{n:02d}", pid, 0) for pid in (0, 1) for n in range(20))
    official = tuple(Record(f"test{pid}{n}", pid, 0) for pid in (0, 1) for n in (0, 1))
    data_set = DataSet("x", train, official, official, held_out=official, classes=("a", "b"), has_cameras=False)
    split = dev_split(data_set, Sources(dev_share=0.1))
    assert Counter(record.pid for record in split.held_out) == {0: 2, 1: 2}
    assert (
        Counter(record.pid for record in split.query) == Counter(record.pid for record in split.gallery) == {0: 1, 1: 1}
    )
    assert {record.path for record in (*split.train, *split.held_out)} == {record.path for record in train}
    with pytest.raises(InputError, match="dev_share"):
        dev_split(data_set, Sources(dev_share=1.0))


def test_only_the_training_half_of_market_is_needed(tmp_path):
    root = market(tmp_path, range(2, 12))
    split = load_datasets("dev:market1501", Sources(root))[0]
    assert (len(split.train), len(split.query), len(split.gallery)) == (8 * 6, 2 * 3, 2 * 3)
    with pytest.raises(InputError, match="query"):
        load_datasets("market1501", Sources(root))
    assert run_command("data", ["check", "dev:market1501", "--root", str(root)]) == 0


BAD = {
    "dev:viper": "viper",  # no folder
    "dev:sensereid": "sensereid",  # no training images
    "dev:nothing": "nothing",
    "dev:market1501": "market1501",  # one person
}


@pytest.mark.parametrize("name", BAD)
def test_a_split_that_cannot_be_made_is_named(name, tmp_path, capfd):
    market(tmp_path, [2])
    assert run_command("data", ["check", name, "--root", str(tmp_path)]) == 2
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert BAD[name] in error.lower()


TRAIN = ["--config", "configs/benchmarks/market1501-dev-10.yaml", "MODEL.WEIGHTS", "none", "METHOD.NAME", "start"]


@pytest.mark.slow
def test_the_benchmark_trains_without_the_unseen_sets(tmp_path):
    root = market(tmp_path / "data", range(2, 102), cameras=(1, 2))
    small = ["INPUT.HEIGHT", "32", "INPUT.WIDTH", "32", "DATA.ROOT", str(root), "BENCHMARK.TASKS_PER_DATASET", "2"]
    assert run_command("train", [*TRAIN, *small, "--out", str(tmp_path / "run")]) == 0
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert [each["name"] for each in results["galleries"]] == ["market1501-dev"]
    assert run_command("train", [*TRAIN, *small, "BENCHMARK.UNSEEN", "[viper]", "--out", str(tmp_path / "no")]) == 2
    assert run_command("train", [*TRAIN, *small, "BENCHMARK.UNSEEN", "[dev:viper]", "--out", str(tmp_path / "no")]) == 2


def test_training_people_in_a_test_split_are_refused(tmp_path, capfd):
    table = tmp_path / "leak.csv"
    Image.new("RGB", (8, 16)).save(tmp_path / "a.png")
    rows = [("train", 1, 1), ("train", 2, 1), ("query", 3, 1), ("gallery", 3, 2), ("gallery", 2, 2)]
    table.write_text("path,pid,camid,split\n" + "".join(f"a.png,{pid},{cam},{split}\n" for split, pid, cam in rows))
    assert run_command("train", [str(table), "--out", str(tmp_path / "run")]) == 2
    assert "2" in capfd.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run" / "results.json").exists()
