from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from class_archives import squares, write_svhn

from lreid.data.datasets import spec_of
from lreid.data.images import read_image
from lreid.errors import InputError

DIGITS = squares(10, train=2, test=2)


def test_matlab_files_pixel_by_pixel(tmp_path: Path) -> None:
    write_svhn(tmp_path / "svhn", DIGITS)
    data_set = spec_of("svhn").load(tmp_path)
    assert data_set.classes == tuple("0123456789")
    pixels, labels = DIGITS["train"]
    for record in data_set.train:
        row = int(Path(record.path).stem)
        assert labels[row] == record.pid and np.array_equal(read_image(record.path), pixels[row])


@pytest.mark.parametrize("content", [{}, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [11]]}])
def test_files_of_another_set_are_refused(content: dict[str, object], tmp_path: Path) -> None:
    home = write_svhn(tmp_path / "svhn", DIGITS)
    scipy.io.savemat(home / "train_32x32.mat", content)
    with pytest.raises(InputError, match="train_32x32.mat: is not the cropped digits of SVHN"):
        spec_of("svhn").load(tmp_path)
