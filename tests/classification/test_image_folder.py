"""Folders of classes: which image is what, which test image belongs to which task, and what is refused."""

import os
from pathlib import Path

import pytest
from plain_benchmark import plain

from lreid.classification import image_folder
from lreid.data.datasets import Sources, load_datasets
from lreid.data.inventory import check_dataset
from lreid.data.tasks import merge_tasks
from lreid.errors import InputError

TRAIN = [f"{name}/{number}.png" for name in ("10", "9") for number in range(2)]
TEST = ["10/a.png", "10/b.JPG", "9/c.webp", "9/d.bmp", "9/e.jpeg"]


@pytest.fixture
def home(tmp_path, make_images):
    make_images(tmp_path / "digits" / "train", TRAIN)
    make_images(tmp_path / "digits" / "test", TEST)
    (tmp_path / "digits" / "train" / "9" / "notes.txt").touch()
    (tmp_path / "digits" / "train" / "9" / "._0.png").touch()  # macOS leaves such files in archives
    (tmp_path / "digits" / "train" / ".hidden").mkdir()
    return tmp_path / "digits"


def short(records):
    return [(Path(path).name, pid, camid) for path, pid, camid in records]


def build(root, tasks=2, name="folder:digits", **changes):
    chosen = {"train": [name], "root": root, "tasks_per_dataset": tasks}
    return plain(**chosen | changes)


def test_class_names_that_are_not_unicode_are_escaped(tmp_path, make_images):
    gbk = os.fsdecode("张三".encode("gbk"))
    make_images(tmp_path / gbk / "train", [f"{gbk}/0.png", "ben/0.png"])
    make_images(tmp_path / gbk / "test", [f"{name}/{number}.png" for name in (gbk, "ben") for number in range(2)])
    data_set = image_folder.load(tmp_path / gbk)
    assert data_set.name == r"\udcd5\udcc5\udcc8\udcfd" and set(data_set.classes) == {data_set.name, "ben"}
    assert all(os.path.exists(record.path) for record in (*data_set.train, *data_set.query, *data_set.gallery))


def test_classes_by_value_and_every_second_test_image_a_query(home):
    data_set = image_folder.load(home)
    assert data_set.name == "digits"
    assert short(data_set.train) == [("0.png", 0, 0), ("1.png", 0, 0), ("0.png", 1, 0), ("1.png", 1, 0)]
    assert data_set.train[0].path == str(home / "train/9/0.png")  # 9 < 10
    assert short(data_set.query) == [("c.webp", 0, 0), ("e.jpeg", 0, 0), ("a.png", 1, 0)]
    assert short(data_set.gallery) == [("d.bmp", 0, 1), ("b.JPG", 1, 1)]
    assert sorted(data_set.held_out) == sorted(data_set.query + data_set.gallery)
    assert {record.camid for record in image_folder.load(home, cameras="same").gallery} == {0}


def test_held_out_images_get_the_labels_of_their_classes(home):
    for changes in ({"order": "ascending"}, {"order": "random", "order_seed": 3}, {"pool": True}):
        benchmark = build(home.parent, **changes)
        assert [task.classes for task in benchmark.tasks] == [[0], [1]]
        for task in benchmark.tasks:
            (trained,) = {Path(record.path).parent.name for record in task.records}
            assert {(Path(path).parent.name, pid) for path, pid, _ in task.held_out} == {(trained, task.index)}
            assert len(task.held_out) == len(list((home / "test" / trained).glob("*.*")))
    merged = merge_tasks(benchmark).tasks[0]
    assert {record.pid for record in merged.held_out} == {0, 1} and len(merged.held_out) == 5


def test_classes_that_are_not_learned_are_not_tested_either(home):
    benchmark = build(home.parent, 1, identities=1)
    assert short(benchmark.tasks[0].held_out) == [("c.webp", 0, 0), ("d.bmp", 0, 1), ("e.jpeg", 0, 0)]
    assert short(benchmark.tests[0].query) == [("c.webp", 0, 0), ("e.jpeg", 0, 0)]
    assert short(benchmark.tests[0].gallery) == [("d.bmp", 0, 1)]


def test_class_folder_is_found_in_root_or_current_folder(home, monkeypatch):
    (expected,) = load_datasets(f"folder:{home}", Sources("elsewhere"))
    assert load_datasets("folder:digits", Sources(home.parent)) == [expected]
    monkeypatch.chdir(home)
    assert load_datasets("folder:.", Sources("elsewhere"))[0].name == "digits"
    (finding,) = check_dataset("folder:digits", home.parent)
    assert (finding.name, finding.status, finding.notes) == ("digits", "there", [])


@pytest.mark.parametrize(
    ("remove", "make", "error"),
    [
        (["train"], [], "digits/train: .*holds test/"),
        (["train", "test"], [], "digits/train: .*empty"),
        (["train/9"], [], "class 9 has 0 of 1 .* in train"),
        (["test/9"], [], "class 9 has 0 of 2 .* in test"),
        (["test/9", "test/10"], [], "digits/test: "),
        (["train/9"], ["train/9"], "class 9 has 0 of 1 .* in train"),
        (["test/10/a.png"], [], "class 10 has 1 of 2 .* in test"),
    ],
)
def test_faulty_folders_are_named(home, remove, make, error):
    for name in remove:
        for path in sorted((home / name).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (home / name).unlink() if (home / name).is_file() else (home / name).rmdir()
    for name in make:
        (home / name).mkdir()
    with pytest.raises(InputError, match=error):
        image_folder.load(home)
    with pytest.raises(InputError, match=f"pets: .*{home}"):
        load_datasets("folder:pets", Sources(home))
