from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from class_archives import squares, write_mini_imagenet, write_tiny_imagenet

from lreid.data.datasets import spec_of
from lreid.errors import InputError

IMAGES = squares(4, train=12, test=3, size=8)


def test_tiny_imagenet_tests_its_validation_images(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200", IMAGES)
    data_set = spec_of("tiny_imagenet").load(tmp_path)
    assert data_set.name == "tiny_imagenet" and data_set.classes == tuple(f"n{label:08d}" for label in range(4))
    assert {(Path(record.path).parents[1].name, record.pid) for record in data_set.train} == {
        (f"n{label:08d}", label) for label in range(4)
    }
    tested = {int(Path(record.path).stem.removeprefix("val_")): record.pid for record in data_set.held_out}
    assert [tested[row] for row in range(12)] == IMAGES["test"][1]


def test_tiny_imagenet_refuses_lines_of_another_form(tmp_path: Path) -> None:
    home = write_tiny_imagenet(tmp_path / "tiny-imagenet-200", IMAGES)
    (home / "val/val_annotations.txt").write_text("val_0.JPEG\tn00000001\n\nval_1.JPEG\n")
    with pytest.raises(
        InputError, match="val_annotations.txt, line 3: must be an image and its class, got 'val_1.JPEG'"
    ):
        spec_of("tiny_imagenet").load(tmp_path)
    (home / "wnids.txt").unlink()
    with pytest.raises(InputError, match="Tiny-ImageNet: .*tiny-imagenet-200 lacks wnids.txt"):
        spec_of("tiny_imagenet").load(tmp_path)


def test_mini_imagenet_joins_its_lists_and_tests_the_last_sixth(tmp_path: Path) -> None:
    home = write_mini_imagenet(tmp_path / "mini-imagenet", IMAGES)
    data_set = spec_of("mini_imagenet").load(tmp_path)
    assert data_set.classes == tuple(f"n{label:08d}" for label in range(4))
    assert Counter(record.pid for record in data_set.train) == dict.fromkeys(range(4), 10)
    assert Counter(record.pid for record in data_set.held_out) == dict.fromkeys(range(4), 2)
    for label in range(4):
        trained = [record.path for record in data_set.train if record.pid == label]
        tested = [record.path for record in data_set.held_out if record.pid == label]
        assert max(trained) < min(tested)
    names = {
        split: [Path(r.path).name for r in records] for split, records in vars(data_set).items() if split == "train"
    }
    for part in ("train", "val", "test"):
        (home / f"{part}.csv").unlink()
    for image in sorted((home / "images").iterdir()):
        folder = home / image.name[:9]
        folder.mkdir(exist_ok=True)
        image.rename(folder / image.name)
    (home / "images").rmdir()
    data_set = spec_of("mini_imagenet").load(tmp_path)  # a folder a class
    assert [Path(record.path).name for record in data_set.train] == names["train"]


def test_mini_imagenet_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mini-imagenet").mkdir()
    with pytest.raises(InputError, match="mini-imagenet: holds neither train.csv nor folders of classes; .* is empty"):
        spec_of("mini_imagenet").load(tmp_path)
    (tmp_path / "mini-imagenet/train.csv").write_text("filename\na.jpg\n")
    with pytest.raises(InputError, match="train.csv, line 2: must have filename and label"):
        spec_of("mini_imagenet").load(tmp_path)
