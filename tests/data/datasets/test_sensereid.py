from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError


@pytest.fixture
def root(tmp_path, make_images):
    make_images(tmp_path / "sensereid/SenseReID/test_probe", ["00002_0.jpg", "00001_0.jpg", "00001_1.jpg"])
    make_images(tmp_path / "sensereid/SenseReID/test_gallery", ["00001_1.jpg", "00002_1.jpg", "01717_0.jpg"])
    return tmp_path


def test_is_for_testing_only(root):
    data_set = spec_of("sensereid").load(root)
    assert data_set.train == ()
    assert [record[1:] for record in data_set.query] == [(1, 0), (1, 1), (2, 0)]
    assert [record[1:] for record in data_set.gallery] == [(1, 1), (2, 1), (1717, 0)]


def test_empty_gallery_is_named(root):
    for image in (root / "sensereid/SenseReID/test_gallery").iterdir():
        image.unlink()
    with pytest.raises(InputError, match="test_gallery: no images for the gallery split of sensereid"):
        spec_of("sensereid").load(root)
