from __future__ import annotations

import numpy as np
import pytest
import scipy.io

from lreid.data.datasets import grid, spec_of
from lreid.errors import InputError

TRAINED = ([1, 3], [2, 4])


def partitions(trained):
    """As published: a row of cells, each a struct whose third field lists the people trained on."""
    cells = np.empty((1, len(trained)), dtype=object)
    for i, people in enumerate(trained):
        cells[0, i] = {"gallery": [9], "probe": [9], "train": np.array([people])}
    return {"trainIdxAll": cells, "features": np.zeros((2, 2))}


@pytest.fixture
def root(tmp_path, make_images):
    home = tmp_path / "grid/underground_reid"
    make_images(home / "probe", [f"{pid:04d}_{pid}_25023_116_159_72_191.jpeg" for pid in (1, 2, 3, 4)])
    make_images(home / "gallery", [f"{pid:04d}_8_25024_116_159_72_191.jpeg" for pid in (1, 2, 3, 4)])
    make_images(home / "gallery", [f"0000_{camera}_1_2_3_4_5.jpeg" for camera in (5, 6, 7)])
    scipy.io.savemat(home / grid.PARTITIONS, partitions(TRAINED))
    return tmp_path


@pytest.mark.parametrize("split", [0, 1])
def test_published_partition(root, split):
    data_set = spec_of("grid").load(root, split=split)
    tested = TRAINED[1 - split]
    assert sorted({record.pid for record in data_set.train}) == TRAINED[split]
    assert len(data_set.train) == 4
    assert [(record.pid, record.camid) for record in data_set.query] == [(pid, pid) for pid in tested]
    # distractors stay in every gallery, each with its camera
    assert [record[1:] for record in data_set.gallery] == [(0, 5), (0, 6), (0, 7), *((pid, 8) for pid in tested)]


def test_the_seed_changes_nothing(root):
    assert spec_of("grid").load(root, seed=1) == spec_of("grid").load(root, seed=2)


def test_partition_that_is_not_there(root):
    with pytest.raises(InputError, match="partitions.mat: has no partition 2 in trainIdxAll"):
        spec_of("grid").load(root, split=2)


def test_file_of_something_else(root):
    file = root / "grid/underground_reid" / grid.PARTITIONS
    scipy.io.savemat(file, {"other": 1})
    with pytest.raises(InputError, match="has no partition 0 in trainIdxAll"):
        spec_of("grid").load(root)
    file.write_bytes(b"not a file of MATLAB")
    with pytest.raises(InputError, match="cannot be read as a MATLAB file"):
        spec_of("grid").load(root)


def test_missing_partitions_are_named(root):
    (root / "grid/underground_reid" / grid.PARTITIONS).unlink()
    with pytest.raises(InputError, match="lacks features_and_partitions.mat"):
        spec_of("grid").load(root)
