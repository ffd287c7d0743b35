from __future__ import annotations

from pathlib import Path

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError

FILES = {
    "bounding_box_train": ["0007_c3_f0077419.jpg", "0001_c2_f0046182.jpg", "0001_c8_f0044158.jpg"],
    "query": ["0005_c2_f0046985.jpg"],
    "bounding_box_test": ["0005_c5_f0051213.jpg", "7139_c1_f0044158.jpg"],
}


@pytest.mark.parametrize("place", ["dukemtmc-reid/DukeMTMC-reID", "DukeMTMC-reID", "dukemtmc-reid"])
def test_reads_ids_and_cameras(tmp_path: Path, make_images, place: str) -> None:
    for folder, names in FILES.items():
        make_images(tmp_path / place / folder, names)
    data_set = spec_of("dukemtmc_reid").load(tmp_path)
    assert [record[1:] for record in data_set.train] == [(1, 2), (1, 8), (7, 3)]
    assert [record[1:] for record in data_set.query] == [(5, 2)]
    assert [record[1:] for record in data_set.gallery] == [(5, 5), (7139, 1)]


def test_a_name_of_another_kind_is_told(tmp_path: Path, make_images) -> None:
    for folder, names in FILES.items():
        make_images(tmp_path / "DukeMTMC-reID" / folder, names)
    make_images(tmp_path / "DukeMTMC-reID" / "query", ["someone.jpg"])
    with pytest.raises(InputError, match="someone.jpg.*0001_c2_f0046182.jpg"):
        spec_of("dukemtmc_reid").load(tmp_path)
