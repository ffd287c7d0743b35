from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError

IMAGES = {1: 2, 2: 3, 5: 4, 10: 8, 119: 2}  # of each person


@pytest.fixture
def root(tmp_path, make_images):
    names = [f"{pid:04d}{number:03d}.jpg" for pid, count in IMAGES.items() for number in range(1, count + 1)]
    make_images(tmp_path / "ilids/i-LIDS_Pedestrian/Persons", names)
    return tmp_path


@pytest.mark.parametrize("split", range(10))
def test_a_query_and_a_gallery_image_of_every_tested_person(root, split):
    data_set = spec_of("ilids").load(root, split=split)
    trained = {record.pid for record in data_set.train}
    assert len(trained) == 2
    assert len(data_set.train) == sum(IMAGES[pid] for pid in trained)
    tested = sorted(set(IMAGES) - trained)
    assert [record.pid for record in data_set.query] == tested
    assert [record.pid for record in data_set.gallery] == tested
    # the number of the image stands for the camera, so the two of a pair never share one
    for query, match in zip(data_set.query, data_set.gallery, strict=True):
        assert query.camid != match.camid
        assert query.path.endswith(f"{query.pid:04d}{query.camid:03d}.jpg")


def test_splits_are_decided_by_the_seed(root):
    assert spec_of("ilids").load(root, split=3) == spec_of("ilids").load(root, split=3)
    assert any(spec_of("ilids").load(root, split=i) != spec_of("ilids").load(root, split=i, seed=1) for i in range(10))


def test_a_single_image_is_no_pair(root):
    for pid in IMAGES:
        for number in range(2, IMAGES[pid] + 1):
            (root / f"ilids/i-LIDS_Pedestrian/Persons/{pid:04d}{number:03d}.jpg").unlink()
    with pytest.raises(InputError, match="i-LIDS: person .* has a single image"):
        spec_of("ilids").load(root)
