from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from class_archives import squares, write_cifar10, write_cifar100

from lreid.data.datasets import spec_of
from lreid.data.images import read_image
from lreid.data.records import DataSet
from lreid.errors import InputError

TEN = squares(10, train=6, test=3)
HUNDRED = squares(100, train=1, test=2)


def content(data_set: DataSet) -> dict[str, dict[int, set[bytes]]]:
    """The pixels of every class."""
    found: dict[str, dict[int, set[bytes]]] = {"train": {}, "test": {}}
    for split, records in (("train", data_set.train), ("test", data_set.held_out)):
        for record in records:
            found[split].setdefault(record.pid, set()).add(read_image(record.path).tobytes())
    return found


def expected(images: dict[str, tuple[np.ndarray, list[int]]]) -> dict[str, dict[int, set[bytes]]]:
    return {
        split: {
            label: {pixels[row].tobytes() for row in np.flatnonzero(np.array(labels) == label)} for label in set(labels)
        }
        for split, (pixels, labels) in images.items()
    }


@pytest.mark.parametrize(("binary", "protocol"), [(False, 2), (False, 5), (True, 2)])
def test_cifar10_pixel_by_pixel(binary: bool, protocol: int, tmp_path: Path) -> None:
    folder = "cifar-10-batches-bin" if binary else "cifar10/cifar-10-batches-py"
    write_cifar10(tmp_path / folder, TEN, binary=binary, protocol=protocol)
    data_set = spec_of("cifar10").load(tmp_path)
    assert content(data_set) == expected(TEN)
    assert data_set.classes[:2] == ("00_thing0", "01_thing1") and data_set.classes[9] == "09_thing9"
    assert set(data_set.query) | set(data_set.gallery) == set(data_set.held_out)
    assert (len(data_set.query), len(data_set.gallery)) == (20, 10)


@pytest.mark.parametrize("binary", [False, True])
def test_cifar100_has_its_fine_classes(binary: bool, tmp_path: Path) -> None:
    write_cifar100(tmp_path / ("cifar-100-binary" if binary else "cifar-100-python"), HUNDRED, binary=binary)
    assert content(spec_of("cifar100").load(tmp_path)) == expected(HUNDRED)


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
    def load(name: str) -> None:
        spec_of(name).load(tmp_path)

    home = write_cifar100(tmp_path / "cifar-10-batches-py", HUNDRED)
    lacking = "CIFAR-10: .*batches-py lacks data_batch_1, .*batches.meta; .* holds .*meta, test, train"
    with pytest.raises(InputError, match=lacking):
        load("cifar10")
    (home / "meta").rename(home / "batches.meta")
    for number in range(1, 6):
        shutil.copy(home / "train", home / f"data_batch_{number}")
    (home / "test").rename(home / "test_batch")
    with pytest.raises(InputError, match="batches.meta: has no label_names; is it of another data set"):
        load("cifar10")
    shutil.copy(write_cifar10(tmp_path / "ten", TEN) / "batches.meta", home / "batches.meta")
    with pytest.raises(InputError, match="data_batch_1: has no labels; is it of another data set"):
        load("cifar10")
    assert not (home / "images").exists()
    home = write_cifar100(tmp_path / "cifar-100-binary", HUNDRED, binary=True)
    shutil.copy(write_cifar10(tmp_path / "bin", TEN, binary=True) / "test_batch.bin", home / "train.bin")
    with pytest.raises(InputError, match="train.bin: has 92190 bytes, which is no multiple of 3074; is it of another"):
        load("cifar100")


def test_labels_beyond_the_names_are_refused(tmp_path: Path) -> None:
    home = write_cifar10(tmp_path / "cifar-10-batches-bin", TEN, binary=True)
    (home / "batches.meta.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="data_batch_1.bin: has labels from 0 to 9, but 2 names"):
        spec_of("cifar10").load(tmp_path)


class Harm:
    """What a pickle may do where it is loaded carelessly."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("harm",)


def test_nothing_that_a_pickle_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = write_cifar10(tmp_path / "cifar-10-batches-py", TEN)
    (home / "data_batch_1").write_bytes(pickle.dumps({b"data": Harm()}))
    with pytest.raises(
        InputError, match=r"data_batch_1: is no batch of CIFAR as it is released \(it names posix.mkdir"
    ):
        spec_of("cifar10").load(tmp_path)
    assert not (tmp_path / "harm").exists()
    (home / "data_batch_1").write_bytes(b"\x80\x05")
    with pytest.raises(InputError, match="data_batch_1: is no batch of CIFAR"):
        spec_of("cifar10").load(tmp_path)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    home = write_cifar10(tmp_path / "cifar-10-batches-py", TEN)
    (home / "images.unfinished").write_text("in the way")
    with pytest.raises(InputError, match="images: cannot be written .*copy the archives to where you may write"):
        spec_of("cifar10").load(tmp_path)
