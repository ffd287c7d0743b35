from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError


@pytest.fixture
def root(tmp_path, make_images):
    make_images(
        tmp_path / "cuhk01/campus", [f"{pid:04d}{image:03d}.png" for pid in range(1, 8) for image in (1, 2, 3, 4)]
    )
    return tmp_path


def test_two_images_a_camera(root):
    data_set = spec_of("cuhk01").load(root)
    trained = {record.pid for record in data_set.train}
    assert (len(trained), len(data_set.train)) == (3, 12)  # half of seven, rounded down
    assert (len(data_set.query), len(data_set.gallery)) == (8, 8)
    assert {(record.path[-5], record.camid) for record in data_set.query} == {("1", 1), ("2", 1)}
    assert {(record.path[-5], record.camid) for record in data_set.gallery} == {("3", 2), ("4", 2)}
    assert not trained & {record.pid for record in data_set.query}


def test_odd_splits_swap_the_cameras(root):
    even, odd = spec_of("cuhk01").load(root, split=18), spec_of("cuhk01").load(root, split=19)
    assert (odd.train, odd.query, odd.gallery) == (even.train, even.gallery, even.query)


def test_splits_are_decided_by_the_seed(root):
    def trained(seed):
        splits = (spec_of("cuhk01").load(root, split=i, seed=seed) for i in range(0, 20, 2))
        return [frozenset(record.pid for record in split.train) for split in splits]

    assert trained(0) == trained(0) != trained(1)
    assert len(set(trained(0))) > 3


def test_odd_name_is_named(root, make_images):
    make_images(root / "cuhk01/campus", ["1.png"])
    with pytest.raises(InputError, match="1.png: unexpected name; expected one like 0001001.png"):
        spec_of("cuhk01").load(root)
