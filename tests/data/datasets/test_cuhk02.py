from __future__ import annotations

import pytest

from lreid.data.datasets import cuhk02, spec_of
from lreid.errors import InputError


@pytest.fixture
def root(tmp_path, make_images):
    for pair in cuhk02.PAIRS:
        for camera in (1, 2):
            names = [f"{pid:03d}_{image:04d}.png" for pid in (1, 2) for image in (1, 2)]
            make_images(tmp_path / f"cuhk02/Dataset/{pair}/cam{camera}", names)
    return tmp_path


def test_every_pair_has_its_own_people_and_cameras(root):
    data_set = spec_of("cuhk02").load(root)
    assert len(data_set.train) == 4 * 2 * 4
    assert sorted({record.pid for record in data_set.train}) == [10001, 10002, 20001, 20002, 30001, 30002, 40001, 40002]
    cameras = {pid: {r.camid for r in data_set.train if r.pid == pid} for pid in (10001, 20002, 40001)}
    assert cameras == {10001: {1, 2}, 20002: {3, 4}, 40001: {7, 8}}
    assert [record[1:] for record in data_set.query] == 2 * [(50001, 9)] + 2 * [(50002, 9)]
    assert [record[1:] for record in data_set.gallery] == 2 * [(50001, 10)] + 2 * [(50002, 10)]


def test_missing_pair_is_named(root):
    (root / "cuhk02/Dataset/P3").rename(root / "cuhk02/Dataset/p3")
    with pytest.raises(InputError, match="CUHK02: .* lacks P3/cam1/, P3/cam2/; .* holds P1/, P2/, P4/, P5/, p3/"):
        spec_of("cuhk02").load(root)
