from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError

TRAIN = ["0000002 7", "0000001 7", "0000003 12"]
TEST = ["0000011 20", "0000012 20", "0000013 20", "0000014 3", "0000015 3"]


@pytest.fixture
def root(tmp_path):
    home = tmp_path / "vehicleid"
    (home / "image").mkdir(parents=True)
    (home / "train_test_split").mkdir()
    (home / "train_test_split/train_list.txt").write_text("\n".join(TRAIN) + "\n")
    for size in (800, 1600, 2400):
        (home / f"train_test_split/test_list_{size}.txt").write_text("\r\n".join(TEST[: 5 - size // 1600]) + "\n\n")
    return tmp_path


def test_one_image_a_vehicle_is_the_gallery(root):
    data_set = spec_of("vehicleid_small").load(root)
    assert data_set.name == "vehicleid_small"
    assert data_set.train == tuple(
        (str(root / f"vehicleid/image/000000{i}.jpg"), pid, 0) for i, pid in ((1, 7), (2, 7), (3, 12))
    )
    assert sorted(record.pid for record in data_set.gallery) == [3, 20]
    assert sorted(record.pid for record in data_set.query) == [3, 20, 20]
    paths = {record.path for record in data_set.query + data_set.gallery}
    assert len(paths) == 5
    assert {record.camid for record in data_set.query} == {0}
    assert {record.camid for record in data_set.gallery} == {1}


def test_size_chooses_the_list(root):
    assert len(spec_of("vehicleid_large").load(root).query) == 2


def test_one_camera_for_all_when_asked(root):
    data_set = spec_of("vehicleid_small").load(root, cameras="same")
    assert {record.camid for record in data_set.query + data_set.gallery} == {0}


def test_ten_draws_are_decided_by_the_seed(root):
    def galleries(seed):
        return [spec_of("vehicleid_small").load(root, split=split, seed=seed).gallery for split in range(10)]

    assert galleries(0) == galleries(0) != galleries(1)
    assert len(set(galleries(0))) > 2


@pytest.mark.parametrize("line", ["0000011", "image 20", "0000011,20"])
def test_faulty_line_is_named(root, line):
    (root / "vehicleid/train_test_split/test_list_800.txt").write_text(f"{TEST[0]}\n{line}\n")
    with pytest.raises(InputError, match="test_list_800.txt:2: unexpected line"):
        spec_of("vehicleid_small").load(root)


def test_missing_list_is_named(root):
    (root / "vehicleid/train_test_split/test_list_1600.txt").unlink()
    with pytest.raises(InputError, match="VehicleID: .* lacks train_test_split/test_list_1600.txt"):
        spec_of("vehicleid_medium").load(root)
