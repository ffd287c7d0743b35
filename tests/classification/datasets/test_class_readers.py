"""Readers of archives of classes: every image with the label that it was written with, and archives with a fault."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from class_archives import (
    Images,
    squares,
    write_cifar10,
    write_cifar100,
    write_mini_imagenet,
    write_mnist,
    write_svhn,
    write_tiny_imagenet,
)

from lreid.data.datasets import spec_of
from lreid.data.images import read_image
from lreid.errors import InputError

TEN, HUNDRED = squares(10, train=6, test=3), squares(100, train=1, test=2)
DIGITS, SMALL = squares(10, train=2, test=3, size=28), squares(4, train=12, test=3, size=8)
GREY = {split: (np.repeat(pixels[..., :1], 3, -1), labels) for split, (pixels, labels) in DIGITS.items()}
THINGS = ("00_thing0", "01_thing1", "02_thing2", "03_thing3")

# Name, folder, writer and images of a data set, and its first classes.
ARCHIVES: list[tuple[str, str, Callable[[Path, Images], Path], Images, tuple[str, ...]]] = [
    ("cifar10", "cifar10/cifar-10-batches-py", write_cifar10, TEN, THINGS),
    ("cifar100", "cifar-100-python", write_cifar100, HUNDRED, THINGS),
    ("mnist", "MNIST/raw", write_mnist, GREY, ("0", "1", "2")),
    ("svhn", "svhn", write_svhn, TEN, ("0", "1", "2")),
]


@pytest.mark.usefixtures("any_checksum")
@pytest.mark.parametrize(("name", "folder", "write", "images", "classes"), ARCHIVES)
def test_every_class_has_its_images_pixel_by_pixel(
    name: str, folder: str, write: Callable, images: Images, classes: tuple[str, ...], tmp_path: Path
) -> None:
    write(tmp_path / folder, images)
    data_set = spec_of(name).load(tmp_path)
    for records, (pixels, labels) in ((data_set.train, images["train"]), (data_set.held_out, images["test"])):
        found = sorted((record.pid, read_image(record.path).tobytes()) for record in records)
        assert found == sorted((label, image.tobytes()) for label, image in zip(labels, pixels, strict=True))
    assert data_set.classes[: len(classes)] == classes
    assert sorted(data_set.query + data_set.gallery) == sorted(data_set.held_out)
    queries = {label: (count + 1) // 2 for label, count in Counter(images["test"][1]).items()}
    assert Counter(record.pid for record in data_set.query) == queries


def test_tiny_imagenet_tests_its_validation_images(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200", SMALL)
    data_set = spec_of("tiny_imagenet").load(tmp_path)
    assert data_set.name == "tiny_imagenet" and data_set.classes == tuple(f"n{label:08d}" for label in range(4))
    assert {(Path(record.path).parents[1].name, record.pid) for record in data_set.train} == {
        (f"n{label:08d}", label) for label in range(4)
    }
    tested = {int(Path(record.path).stem.removeprefix("val_")): record.pid for record in data_set.held_out}
    assert [tested[row] for row in range(12)] == SMALL["test"][1]


def test_mini_imagenet_joins_its_lists_and_tests_the_first_sixth(tmp_path: Path) -> None:
    home = write_mini_imagenet(tmp_path / "mini-imagenet", SMALL)
    data_set = spec_of("mini_imagenet").load(tmp_path)
    assert data_set.classes == tuple(f"n{label:08d}" for label in range(4))
    assert Counter(record.pid for record in data_set.train) == dict.fromkeys(range(4), 10)
    assert Counter(record.pid for record in data_set.held_out) == dict.fromkeys(range(4), 2)
    for label in range(4):
        trained = [record.path for record in data_set.train if record.pid == label]
        tested = [record.path for record in data_set.held_out if record.pid == label]
        assert max(tested) < min(trained)  # as in AML_pc
    names = [Path(record.path).name for record in data_set.train]
    for part in ("train", "val", "test"):
        (home / f"{part}.csv").unlink()
    for image in sorted((home / "images").iterdir()):
        folder = home / image.name[:9]
        folder.mkdir(exist_ok=True)
        image.rename(folder / image.name)
    (home / "images").rmdir()
    data_set = spec_of("mini_imagenet").load(tmp_path)  # a folder a class
    assert [Path(record.path).name for record in data_set.train] == names


@pytest.mark.usefixtures("any_checksum")
def test_archive_is_unpacked_once(tmp_path: Path) -> None:
    home = write_cifar10(tmp_path / "cifar-10-batches-py", TEN)
    (home / ".images.unfinished.lreid" / "train" / "99_gone").mkdir(parents=True)  # broken off, of another archive
    first = spec_of("cifar10").load(tmp_path)
    assert not (home / ".images.unfinished.lreid").exists() and len(first.classes) == 10
    for name in os.listdir(home):
        if name != "images":
            (home / name).unlink()
    assert spec_of("cifar10").load(tmp_path) == first  # the archive is not read again


@pytest.mark.parametrize(("name", "folder", "write", "images", "classes"), ARCHIVES)
def test_a_damaged_archive_is_refused(
    name: str, folder: str, write: Callable, images: Images, classes: tuple[str, ...], tmp_path: Path
) -> None:
    """torchvision verifies the checksums of CIFAR and SVHN, so pickles of other origin are never loaded."""
    home = write(tmp_path / folder, images)
    if name == "mnist":
        (home / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x03ab")
    with pytest.raises(InputError, match=f"{home}: .*{name}"):
        spec_of(name).load(tmp_path)
    assert not (home / "images").exists()


@pytest.mark.usefixtures("any_checksum")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    home = write_cifar10(tmp_path / "cifar-10-batches-py", TEN)
    (home / ".images.unfinished.lreid").touch()
    with pytest.raises(InputError, match=f"{home / 'images'}: cannot be written"):
        spec_of("cifar10").load(tmp_path)


def test_lists_of_another_form_are_refused(tmp_path: Path) -> None:
    home = write_tiny_imagenet(tmp_path / "tiny-imagenet-200", SMALL)
    (home / "val/val_annotations.txt").write_text("val_0.JPEG\tn00000001\n\nval_1.JPEG\n")
    with pytest.raises(InputError, match="val_annotations.txt:3: .*'val_1.JPEG'"):
        spec_of("tiny_imagenet").load(tmp_path)
    (home / "wnids.txt").unlink()
    with pytest.raises(InputError, match="tiny-imagenet-200 lacks wnids.txt"):
        spec_of("tiny_imagenet").load(tmp_path)
    (tmp_path / "mini-imagenet").mkdir()
    with pytest.raises(InputError, match="mini-imagenet: no images for the train split"):
        spec_of("mini_imagenet").load(tmp_path)
    (tmp_path / "mini-imagenet/train.csv").write_text("filename\na.jpg\n")
    with pytest.raises(InputError, match="train.csv:2: "):
        spec_of("mini_imagenet").load(tmp_path)
