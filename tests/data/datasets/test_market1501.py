from __future__ import annotations

import shutil

import pytest

from lreid.data.datasets import spec_of
from lreid.data.records import Record
from lreid.errors import InputError

TRAIN = ["0007_c3s3_077419_03.jpg", "0002_c1s1_000451_03.jpg", "0002_c2s1_000451_01.jpg"]
QUERY = ["0001_c1s1_001051_00.jpg", "1501_c6s4_001877_00.jpg"]
GALLERY = ["1501_c4s6_052060_01.jpg", "0001_c2s1_001976_01.jpg", "0000_c1s1_000151_01.jpg"]
JUNK = ["-1_c1s1_000401_03.jpg", "-1_c3s2_000401_01.jpg"]


@pytest.fixture
def root(tmp_path, make_images):
    home = tmp_path / "market1501"
    make_images(home / "bounding_box_train", [*TRAIN, "0000_c1s1_000151_09.jpg", "-1_c1s1_000401_09.jpg"])
    make_images(home / "query", QUERY)
    make_images(home / "bounding_box_test", GALLERY + JUNK)
    for name in ("Thumbs.db", "._0002_c1s1_000451_03.jpg"):
        (home / "bounding_box_train" / name).write_bytes(b"no image")
    return tmp_path


def test_reads_ids_and_cameras_in_file_order(root):
    data_set = spec_of("market1501").load(root)
    train = root / "market1501" / "bounding_box_train"
    assert data_set.name == "market1501"
    assert data_set.train == (  # neither junk nor distractors
        Record(str(train / "0002_c1s1_000451_03.jpg"), 2, 1),
        Record(str(train / "0002_c2s1_000451_01.jpg"), 2, 2),
        Record(str(train / "0007_c3s3_077419_03.jpg"), 7, 3),
    )
    assert [record[1:] for record in data_set.query] == [(1, 1), (1501, 6)]
    assert [record[1:] for record in data_set.gallery] == [(0, 1), (1, 2), (1501, 4)]  # 0 stays, -1 does not


@pytest.mark.parametrize("place", ["Market-1501-v15.09.15", "market1501/Market-1501-v15.09.15"])
def test_finds_the_archives_own_folder(root, place):
    expected = spec_of("market1501").load(root)
    (root / "market1501").rename(root / "moved")
    (root / place).parent.mkdir(exist_ok=True)
    (root / "moved").rename(root / place)
    found = spec_of("market1501").load(root)
    assert [r[1:] for r in found.train] == [r[1:] for r in expected.train]
    assert all(str(root / place) in record.path for record in found.train)


def test_an_incomplete_folder_does_not_hide_a_complete_one(root):
    (root / "Market-1501-v15.09.15").mkdir()
    assert len(spec_of("market1501").load(root).train) == 3


def test_missing_folder_names_place_source_and_what_is_there(tmp_path):
    (tmp_path / "markt1501").mkdir()
    with pytest.raises(InputError) as error:
        spec_of("market1501").load(tmp_path)
    message = str(error.value)
    assert str(tmp_path / "market1501") in message
    assert "https://" in message
    assert f"{tmp_path} holds markt1501/" in message
    assert "\n" not in message


def test_missing_root_is_said(tmp_path):
    with pytest.raises(InputError, match="nowhere does not exist"):
        spec_of("market1501").load(tmp_path / "nowhere")


def test_wrong_layout_names_what_is_missing_and_what_is_there(root):
    (root / "market1501" / "query").rename(root / "market1501" / "querys")
    with pytest.raises(InputError, match="market1501 lacks query/; .* holds .*querys/"):
        spec_of("market1501").load(root)


def test_a_file_is_no_folder(root):
    shutil.rmtree(root / "market1501" / "query")
    (root / "market1501" / "query").touch()
    with pytest.raises(InputError, match="market1501 lacks query/"):
        spec_of("market1501").load(root)


def test_long_listings_are_cut(tmp_path):
    for i in range(30):
        (tmp_path / f"other{i:02d}").mkdir()
    with pytest.raises(InputError, match="holds other00/, .*other07/ and 22 more"):
        spec_of("market1501").load(tmp_path)


@pytest.mark.parametrize("folder", ["bounding_box_train", "query", "bounding_box_test"])
def test_empty_split_names_its_folder(root, folder):
    shutil.rmtree(root / "market1501" / folder)
    (root / "market1501" / folder).mkdir()
    with pytest.raises(InputError, match=f"{folder}: no images for the .* split of market1501"):
        spec_of("market1501").load(root)


def test_a_split_of_junk_is_empty(root, make_images):
    shutil.rmtree(root / "market1501" / "query")
    make_images(root / "market1501" / "query", JUNK)
    with pytest.raises(InputError, match="no images for the query split"):
        spec_of("market1501").load(root)


def test_odd_file_name_is_named_with_the_pattern(root, make_images):
    make_images(root / "market1501" / "query", ["person2.jpg"])
    with pytest.raises(InputError, match=r"person2.jpg: unexpected name; expected one like 0002_c1s1"):
        spec_of("market1501").load(root)
