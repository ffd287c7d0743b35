from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError

PEOPLE = [0, 1, 3, 7, 873]  # with gaps, as published


@pytest.fixture
def root(tmp_path, make_images):
    make_images(tmp_path / "viper/VIPeR/cam_a", [f"{pid:03d}_45.bmp" for pid in PEOPLE])
    make_images(tmp_path / "viper/VIPeR/cam_b", [f"{pid:03d}_{90 + pid % 2}.bmp" for pid in PEOPLE])
    (tmp_path / "viper/VIPeR/cam_a/Thumbs.db").touch()
    return tmp_path


def test_half_is_trained_on_and_the_cameras_face_each_other(root):
    data_set = spec_of("viper").load(root)
    trained = {record.pid for record in data_set.train}
    assert (len(trained), len(data_set.train)) == (2, 4)
    assert {record.camid for record in data_set.train} == {1, 2}
    assert [record.pid for record in data_set.query] == sorted(set(PEOPLE) - trained)
    assert [record.pid for record in data_set.gallery] == [record.pid for record in data_set.query]
    assert {record.camid for record in data_set.query} == {1}
    assert {record.camid for record in data_set.gallery} == {2}
    assert data_set.query[0].path.endswith("_45.bmp")


def test_odd_splits_swap_the_cameras(root):
    even, odd = spec_of("viper").load(root, split=6), spec_of("viper").load(root, split=7)
    assert (odd.train, odd.query, odd.gallery) == (even.train, even.gallery, even.query)


def test_splits_differ_and_are_decided_by_the_seed(root):
    def people(**options):
        return tuple(record.pid for record in spec_of("viper").load(root, **options).query)

    assert len({people(split=split) for split in range(20)}) > 3
    assert [people(split=split, seed=1) for split in range(20)] != [people(split=split) for split in range(20)]
    assert people(split=4, seed=1) == people(split=4, seed=1)


def test_a_person_without_pair_is_named(root):
    (root / "viper/VIPeR/cam_b/007_91.bmp").unlink()
    with pytest.raises(InputError, match="VIPeR: person 7 is in only one of cam_a and cam_b"):
        spec_of("viper").load(root)


def test_missing_folder_is_named(root):
    (root / "viper/VIPeR/cam_b").rename(root / "viper/VIPeR/cam_c")
    with pytest.raises(InputError, match="VIPeR: .*VIPeR lacks cam_b/; .* holds cam_a/, cam_c/"):
        spec_of("viper").load(root)
