from __future__ import annotations

import pytest

from lreid.data.datasets import spec_of
from lreid.errors import InputError

LISTS = {
    "train": ["0001/0001_002_15_0303morning_0015_0.jpg 1", "0000/0000_000_01_0303morning_0015_0.jpg 0"],
    "val": ["0000/0000_050_02_0303noon_0015_1.jpg 0"],
    "query": ["0000/0000_000_03_0302afternoon_0777_0.jpg 0"],
    "gallery": ["0001/0001_001_05_0302afternoon_0777_0.jpg 1", "0000/0000_001_04_0302afternoon_0777_0.jpg 0"],
}
FOLDERS = {"v1": ("train", "test"), "v2": ("mask_train_v2", "mask_test_v2")}


@pytest.fixture
def make_msmt(tmp_path, make_images):
    def make(version, below="msmt17"):
        home = tmp_path / below / f"MSMT17_{version.upper()}"
        for split, lines in LISTS.items():
            folder = FOLDERS[version][split in ("query", "gallery")]
            make_images(home / folder, [line.split()[0] for line in lines])
            (home / f"list_{split}.txt").write_text("\n".join(lines) + "\n\n")
        return home

    return make


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("below", ["msmt17", "."])
def test_reads_the_lists(tmp_path, make_msmt, version, below):
    home = make_msmt(version, below)
    data_set = spec_of(f"msmt17_{version}").load(tmp_path)
    train, test = (home / folder for folder in FOLDERS[version])
    assert data_set.name == f"msmt17_{version}"
    assert data_set.train == (
        (str(train / "0000/0000_000_01_0303morning_0015_0.jpg"), 0, 1),
        (str(train / "0001/0001_002_15_0303morning_0015_0.jpg"), 1, 15),
    )
    assert data_set.query == ((str(test / "0000/0000_000_03_0302afternoon_0777_0.jpg"), 0, 3),)
    assert [record[1:] for record in data_set.gallery] == [(0, 4), (1, 5)]


def test_val_is_used_only_when_asked_for(tmp_path, make_msmt):
    make_msmt("v2")
    without, with_val = (spec_of(name).load(tmp_path) for name in ("msmt17_v2", "msmt17_v2+val"))
    assert [record[1:] for record in without.train] == [(0, 1), (1, 15)]
    assert [record[1:] for record in with_val.train] == [(0, 1), (0, 2), (1, 15)]
    assert (with_val.query, with_val.gallery) == (without.query, without.gallery)


def test_the_other_version_is_no_substitute(tmp_path, make_msmt):
    make_msmt("v1")
    with pytest.raises(InputError, match="MSMT17 V2: no folder .*MSMT17_V2"):
        spec_of("msmt17_v2").load(tmp_path)


def test_missing_list_is_named(tmp_path, make_msmt):
    (make_msmt("v1") / "list_gallery.txt").unlink()
    with pytest.raises(InputError, match="MSMT17_V1 lacks list_gallery.txt; .* holds list_query.txt"):
        spec_of("msmt17_v1").load(tmp_path)


def test_missing_images_folder_is_named(tmp_path, make_msmt):
    home = make_msmt("v2")
    (home / "mask_train_v2").rename(home / "train")
    with pytest.raises(InputError, match="lacks mask_train_v2/; .* holds .*train/"):
        spec_of("msmt17_v2").load(tmp_path)


@pytest.mark.parametrize("line", ["0000/0000_000_01_x.jpg", "0000/0000.jpg 0", "0000/0000_000_01_x.jpg zero"])
def test_faulty_line_is_named(tmp_path, make_msmt, line):
    home = make_msmt("v1")
    (home / "list_query.txt").write_text(f"{LISTS['query'][0]}\n{line}\n")
    with pytest.raises(InputError, match="list_query.txt:2: unexpected line"):
        spec_of("msmt17_v1").load(tmp_path)


def test_empty_list_is_an_empty_split(tmp_path, make_msmt):
    (make_msmt("v1") / "list_train.txt").write_text("\n")
    with pytest.raises(InputError, match="list_train.txt: no images for the train split of msmt17_v1"):
        spec_of("msmt17_v1").load(tmp_path)
