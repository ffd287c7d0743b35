from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError


@pytest.fixture
def root(tmp_path, make_images):
    home = tmp_path / "prid2011/prid_2011/single_shot"
    shared = [1, 2, 3, 200]
    make_images(home / "cam_a", [f"person_{pid:04d}.png" for pid in [*shared, 201, 385]])
    make_images(home / "cam_b", [f"person_{pid:04d}.png" for pid in [*shared, 201, 749]])
    return tmp_path


def test_only_shared_people_are_trained_on_and_asked_for(root):
    data_set = spec_of("prid2011").load(root)
    trained = {record.pid for record in data_set.train}
    assert len(trained) == 2
    assert len(data_set.train) == 4  # by both cameras
    assert trained | {record.pid for record in data_set.query} == {1, 2, 3, 200}
    assert {record.camid for record in data_set.query} == {1}
    # camera B alone: people 201 and 749; 201 of camera A is somebody else and is not used
    assert {record.pid for record in data_set.gallery} == {1, 2, 3, 200, 201, 749} - trained
    assert {record.camid for record in data_set.gallery} == {2}


def test_ten_splits_are_decided_by_the_seed(root):
    def queries(seed):
        splits = (spec_of("prid2011").load(root, split=i, seed=seed) for i in range(10))
        return [tuple(record.pid for record in split.query) for split in splits]

    assert queries(0) == queries(0)
    assert queries(0) != queries(1)
    assert len(set(queries(0))) > 2


def test_odd_name_is_named(root, make_images):
    make_images(root / "prid2011/prid_2011/single_shot/cam_b", ["0001.png"])
    with pytest.raises(InputError, match="0001.png: unexpected name; expected one like person_0001.png"):
        spec_of("prid2011").load(root)
