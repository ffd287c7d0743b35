"""Readers of archives of classes: every image with the label that it was written with, and archives with a fault."""

import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.io
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

# The data set, its folder, what writes it of which images, and the first of its classes.
ARCHIVES: list[tuple[str, str, Callable[[Path, Images], Path], Images, tuple[str, ...]]] = [
    ("cifar10", "cifar10/cifar-10-batches-py", write_cifar10, TEN, THINGS),
    ("cifar10", "cifar10/cifar-10-batches-py", partial(write_cifar10, protocol=5), TEN, THINGS),
    ("cifar10", "cifar-10-batches-bin", partial(write_cifar10, binary=True), TEN, THINGS),
    ("cifar100", "cifar-100-python", write_cifar100, HUNDRED, THINGS),
    ("cifar100", "cifar-100-binary", partial(write_cifar100, binary=True), HUNDRED, THINGS),
    ("mnist", "MNIST/raw", write_mnist, GREY, ("0", "1", "2")),
    ("mnist", "MNIST/raw", partial(write_mnist, packed=True), GREY, ("0", "1", "2")),
    ("svhn", "svhn", write_svhn, TEN, ("0", "1", "2")),
]


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


def test_mini_imagenet_joins_its_lists_and_tests_the_last_sixth(tmp_path: Path) -> None:
    home = write_mini_imagenet(tmp_path / "mini-imagenet", SMALL)
    data_set = spec_of("mini_imagenet").load(tmp_path)
    assert data_set.classes == tuple(f"n{label:08d}" for label in range(4))
    assert Counter(record.pid for record in data_set.train) == dict.fromkeys(range(4), 10)
    assert Counter(record.pid for record in data_set.held_out) == dict.fromkeys(range(4), 2)
    for label in range(4):
        trained = [record.path for record in data_set.train if record.pid == label]
        tested = [record.path for record in data_set.held_out if record.pid == label]
        assert max(trained) < min(tested)
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


def test_images_are_unpacked_once_and_no_half_is_taken_for_all(tmp_path: Path) -> None:
    home = write_cifar10(tmp_path / "cifar-10-batches-py", TEN)
    (home / "images.unfinished" / "train" / "99_gone").mkdir(parents=True)  # broken off, of another archive
    first = spec_of("cifar10").load(tmp_path)
    assert not (home / "images.unfinished").exists() and len(first.classes) == 10
    for name in os.listdir(home):
        if name != "images":
            (home / name).unlink()
    assert spec_of("cifar10").load(tmp_path) == first  # the archive is not looked at again


def test_an_archive_of_another_set_is_refused(tmp_path: Path) -> None:
    home = write_cifar100(tmp_path / "cifar-10-batches-py", HUNDRED)
    lacking = "CIFAR-10: .*batches-py lacks data_batch_1, .*batches.meta; .* holds .*meta, test, train"
    with pytest.raises(InputError, match=lacking):
        spec_of("cifar10").load(tmp_path)
    (home / "meta").rename(home / "batches.meta")
    for number in range(1, 6):
        shutil.copy(home / "train", home / f"data_batch_{number}")
    (home / "test").rename(home / "test_batch")
    with pytest.raises(InputError, match="batches.meta: has no label_names; if it belongs to another data set"):
        spec_of("cifar10").load(tmp_path)
    shutil.copy(write_cifar10(tmp_path / "ten", TEN) / "batches.meta", home / "batches.meta")
    with pytest.raises(InputError, match="data_batch_1: has no labels; if it belongs to another data set"):
        spec_of("cifar10").load(tmp_path)
    assert not (home / "images").exists()


class Harm:
    """What a pickle may do where it is loaded carelessly."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("harm",)


def matlab(images: np.ndarray, labels: list[list[int]]) -> Callable[[Path], None]:
    return lambda file: scipy.io.savemat(file, {"X": images, "y": labels})


FAULTS: list[tuple[int, str, bytes | str | Callable[[Path], None] | None, str]] = [  # number of the archive, file
    (0, "data_batch_1", pickle.dumps({b"data": Harm()}), r"is not a batch file of CIFAR \(it names posix"),
    (0, "data_batch_1", b"\x80\x05", "data_batch_1: is not a batch file of CIFAR"),
    (0, "images.unfinished", "in the way", "images: cannot be written .*copy the archives to a folder that you can"),
    (2, "batches.meta.txt", "one\ntwo\n", "data_batch_1.bin: has labels from 0 to 9, but 2 names"),
    (4, "train.bin", b"\0" * 92190, "train.bin: has 92190 bytes, which is not a multiple of 3074; if it belongs"),
    (5, "train-images-idx3-ubyte", None, "MNIST: .*raw lacks train-images-idx3-ubyte; .* holds"),
    (5, "train-images-idx3-ubyte", b"\0\0\x08\x01\0\0\0\0", "is not an idx file with 3 axes of bytes; is it a file of"),
    (5, "t10k-images-idx3-ubyte", b"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x03abcdef",
     "images of 2 x 3 in t10k; MNIST's"),
    (5, "train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x03ab", r"has 2 values, but declares \[3\]; download it again"),
    (5, "train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x03abc", "20 images and 3 labels in train"),
    (5, "t10k-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x1e" + bytes(range(30)),
     "label 29 in t10k; MNIST has 10 digits: is it another data set"),
    (6, "train-images-idx3-ubyte.gz", b"\x1f\x8b\x08", "train-images-idx3-ubyte.gz: cannot be read"),
    (7, "train_32x32.mat", lambda file: scipy.io.savemat(file, {}), "train_32x32.mat: is not the cropped digits"),
    (7, "train_32x32.mat", matlab(np.zeros((32, 32, 3, 2), np.uint8), [[1], [11]]), "is not the cropped digits"),
]  # fmt: skip


@pytest.mark.parametrize(("archive", "file", "content", "message"), FAULTS)
def test_faults_are_named(
    archive: int, file: str, content: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, folder, write, images, _ = ARCHIVES[archive]
    path = write(tmp_path / folder, images) / file
    path.unlink(missing_ok=True)
    if callable(content):
        content(path)
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as raised:
        spec_of(name).load(tmp_path)
    assert "\n" not in str(raised.value) and not (tmp_path / "harm").exists()


def test_lists_of_another_form_are_refused(tmp_path: Path) -> None:
    home = write_tiny_imagenet(tmp_path / "tiny-imagenet-200", SMALL)
    (home / "val/val_annotations.txt").write_text("val_0.JPEG\tn00000001\n\nval_1.JPEG\n")
    told = "val_annotations.txt:3: unexpected line 'val_1.JPEG'"
    with pytest.raises(InputError, match=told):
        spec_of("tiny_imagenet").load(tmp_path)
    (home / "wnids.txt").unlink()
    with pytest.raises(InputError, match="Tiny-ImageNet: .*tiny-imagenet-200 lacks wnids.txt"):
        spec_of("tiny_imagenet").load(tmp_path)
    (tmp_path / "mini-imagenet").mkdir()
    with pytest.raises(InputError, match="mini-imagenet: holds neither train.csv nor folders of classes; .* is empty"):
        spec_of("mini_imagenet").load(tmp_path)
    (tmp_path / "mini-imagenet/train.csv").write_text("filename\na.jpg\n")
    with pytest.raises(InputError, match="train.csv, line 2: must have filename and label"):
        spec_of("mini_imagenet").load(tmp_path)
