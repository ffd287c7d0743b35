from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from class_archives import squares, write_mnist

from lreid.data.datasets import spec_of
from lreid.data.images import read_image
from lreid.errors import InputError

DIGITS = squares(10, train=2, test=3, size=28)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_pixel_by_pixel(packed: bool, tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST/raw", DIGITS, packed=packed)
    data_set = spec_of("mnist").load(tmp_path)
    assert data_set.classes == tuple("0123456789")
    for records, (pixels, labels) in ((data_set.train, DIGITS["train"]), (data_set.held_out, DIGITS["test"])):
        assert len(records) == len(labels)
        for record in records:
            row = int(Path(record.path).stem)
            assert labels[row] == record.pid
            assert np.array_equal(read_image(record.path), np.repeat(pixels[row, ..., :1], 3, axis=2))


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("train-images-idx3-ubyte", None, "MNIST: .*mnist lacks train-images-idx3-ubyte; .* holds"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x01\0\0\0\0", "is no idx file of 3 axes of bytes; is it of another"),
        (
            "t10k-images-idx3-ubyte",
            b"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x03abcdef",
            "images of 2 x 3 in t10k; MNIST's",
        ),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x03ab", r"has 2 values, but says \[3\]; get it again"),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x03abc", "20 images and 3 labels in train"),
        (
            "t10k-labels-idx1-ubyte",
            b"\0\0\x08\x01\0\0\0\x1e" + bytes(range(30)),
            "label 29 in t10k; MNIST has 10 digits: is it of another data set",
        ),
    ],
)
def test_files_of_another_set_are_refused(name: str, content: bytes | None, fault: str, tmp_path: Path) -> None:
    home = write_mnist(tmp_path / "mnist", DIGITS)
    (home / name).unlink()
    if content is not None:
        (home / name).write_bytes(content)
    with pytest.raises(InputError, match=fault) as raised:
        spec_of("mnist").load(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    home = write_mnist(tmp_path / "mnist", DIGITS, packed=True)
    (home / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(InputError, match="train-images-idx3-ubyte.gz: cannot be read"):
        spec_of("mnist").load(tmp_path)
