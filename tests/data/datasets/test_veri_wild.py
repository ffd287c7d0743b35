from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError

INFO = """id/image;Camera ID;Time;Model;Type;Color
00001/000001;12;2018-03-11 06:20:20;Volkswagen;SUV;white
00001/000002;174;2018-03-11 06:21:20;\u5927\u4f17;SUV;white
00002/000003;1
00002/000004;2;;;;
"""


@pytest.fixture
def root(tmp_path):
    lists = tmp_path / "VERI-Wild/train_test_split"
    lists.mkdir(parents=True)
    (tmp_path / "VERI-Wild/images").mkdir()
    (lists / "vehicle_info.txt").write_text(INFO, encoding="gbk")
    (lists / "train_list.txt").write_text("00001/000002\n00001/000001.jpg\n")
    for size in (3000, 5000, 10000):
        (lists / f"test_{size}_query.txt").write_text("00002/000003\n")
        (lists / f"test_{size}.txt").write_text("00002/000004\n\n")
    return tmp_path


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_cameras_come_from_the_information_file(root, size):
    data_set = spec_of(f"veri_wild_{size}").load(root)
    images = root / "VERI-Wild/images"
    assert data_set.name == f"veri_wild_{size}"
    assert data_set.train == ((str(images / "00001/000001.jpg"), 1, 12), (str(images / "00001/000002.jpg"), 1, 174))
    assert data_set.query == ((str(images / "00002/000003.jpg"), 2, 1),)
    assert data_set.gallery == ((str(images / "00002/000004.jpg"), 2, 2),)


def test_image_without_information_is_named(root):
    (root / "VERI-Wild/train_test_split/test_3000.txt").write_text("00002/000004\n00002/000009\n")
    with pytest.raises(InputError, match="test_3000.txt:2: '00002/000009' is not in vehicle_info.txt"):
        spec_of("veri_wild_small").load(root)


def test_faulty_information_is_named(root):
    (root / "VERI-Wild/train_test_split/vehicle_info.txt").write_text("id/image;Camera ID\n00001/000001\n")
    with pytest.raises(InputError, match="vehicle_info.txt:2: unexpected line '00001/000001'"):
        spec_of("veri_wild_small").load(root)


def test_missing_list_is_named(root):
    (root / "VERI-Wild/train_test_split/test_5000_query.txt").unlink()
    with pytest.raises(InputError, match="VERI-Wild: .* lacks train_test_split/test_5000_query.txt"):
        spec_of("veri_wild_medium").load(root)
    assert spec_of("veri_wild_small").load(root)
