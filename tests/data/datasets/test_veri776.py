from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError


@pytest.fixture
def make_veri(tmp_path, make_images):
    def make(folder):
        make_images(tmp_path / folder / "image_train", ["0004_c012_00028630_0.jpg", "0001_c001_00016450_0.jpg"])
        make_images(tmp_path / folder / "image_query", ["0002_c002_00030600_0.jpg"])
        make_images(tmp_path / folder / "image_test", ["0002_c020_00030600_0.jpg", "-1_c003_00030600_0.jpg"])
        return tmp_path

    return make


@pytest.mark.parametrize("folder", ["veri", "VeRi"])
def test_reads_ids_and_cameras(make_veri, folder):
    data_set = spec_of("veri776").load(make_veri(folder))
    assert data_set.name == "veri776"
    assert [record[1:] for record in data_set.train] == [(1, 1), (4, 12)]
    assert [record[1:] for record in data_set.query] == [(2, 2)]
    assert [record[1:] for record in data_set.gallery] == [(2, 20)]


def test_missing_folder(tmp_path):
    with pytest.raises(InputError, match="VeRi-776: no folder .*veri or .*VeRi; get the data set from .*is empty"):
        spec_of("veri776").load(tmp_path)


def test_odd_file_name(make_veri, make_images):
    root = make_veri("veri")
    make_images(root / "veri" / "image_test", ["0002c020.jpg"])
    with pytest.raises(InputError, match="0002c020.jpg: unexpected name; expected one like 0001_c001_"):
        spec_of("veri776").load(root)


def test_tracks_are_the_lines_of_their_file(make_veri, make_images):
    root = make_veri("veri")
    images = ["0002_c020_00030605_1.jpg", "0003_c001_00000001_0.jpg"]
    make_images(root / "veri" / "image_test", images)
    file = root / "veri" / "test_track.txt"
    file.write_bytes(
        b"0003_c001_00000001 0003_c001_00000001_0.jpg caf\xe9.jpg \n"  # not UTF-8, and of no image that is there
        b"0002_c020_00030600 0002_c020_00030600_0.jpg 0002_c020_00030605_1.jpg \n"
    )
    data_set = spec_of("veri776_tracks").load(root)
    assert data_set.name == "veri776_tracks" and data_set.tracks == (1, 1, 0)
    assert data_set.gallery == spec_of("veri776").load(root).gallery and spec_of("veri776").load(root).tracks == ()
    file.write_text("0002_c020_00030600 0002_c020_00030600_0.jpg\n")
    with pytest.raises(InputError, match="test_track.txt: has no track of 0002_c020_00030605_1.jpg"):
        spec_of("veri776_tracks").load(root)
    file.unlink()
    with pytest.raises(InputError, match="test_track.txt"):
        spec_of("veri776_tracks").load(root)
