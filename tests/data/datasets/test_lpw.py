from __future__ import annotations

import pytest

from lreid.data.datasets import lpw, spec_of
from lreid.errors import InputError


@pytest.fixture
def root(tmp_path, make_images):
    for scene, views in lpw.VIEWS.items():
        for view in range(1, views + 1):
            folder = tmp_path / f"lpw/pep_256x128/scen{scene}/view{view}"
            make_images(folder, [f"{person}/{frame:05d}.jpg" for person in (0, 12) for frame in (1, 2)])
    (tmp_path / "lpw/pep_256x128/scen1/view1/readme.txt").touch()
    (tmp_path / "lpw/pep_256x128/scen2/view1/12/._00001.jpg").touch()  # macOS leaves such files in archives
    return tmp_path


def test_scenes_have_their_own_people_and_cameras(root):
    data_set = spec_of("lpw").load(root)
    assert sorted({record.pid for record in data_set.train}) == [20000, 20012, 30000, 30012]
    assert sorted({record.camid for record in data_set.train}) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert len(data_set.train) == 8 * 4
    assert {(record.pid, record.camid) for record in data_set.query} == {(10000, 2), (10012, 2)}
    assert {(r.pid, r.camid) for r in data_set.gallery} == {(p, c) for p in (10000, 10012) for c in (1, 3)}
    assert (len(data_set.query), len(data_set.gallery)) == (4, 8)


def test_missing_view_is_named(root):
    (root / "lpw/pep_256x128/scen3/view4").rename(root / "lpw/pep_256x128/scen3/view5")
    with pytest.raises(InputError, match="LPW: .*pep_256x128 lacks scen3/view4/"):
        spec_of("lpw").load(root)


def test_odd_folder_is_named(root):
    (root / "lpw/pep_256x128/scen2/view1/somebody").mkdir()
    with pytest.raises(InputError, match="somebody: unexpected name; expected the number of a person"):
        spec_of("lpw").load(root)


def test_scene_two_in_the_layout_of_market(tmp_path, make_images):
    make_images(tmp_path / "LPW_s2/bounding_box_train", ["0003_c4s2_000001_00.jpg"])
    make_images(tmp_path / "LPW_s2/query", ["0001_c1s2_000001_00.jpg"])
    make_images(tmp_path / "LPW_s2/bounding_box_test", ["0001_c2s2_000001_00.jpg", "-1_c2s2_000002_00.jpg"])
    data_set = spec_of("lpw_s2").load(tmp_path)
    assert [[r[1:] for r in s] for s in (data_set.train, data_set.query, data_set.gallery)] == [
        [(3, 4)],
        [(1, 1)],
        [(1, 2)],
    ]
