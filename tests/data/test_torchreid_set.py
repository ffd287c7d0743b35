"""Data sets read by torchreid: the records of lreid's own reader, and one line for what is missing."""

import sys
from pathlib import Path

import pytest

from lreid.data.datasets import load_datasets
from lreid.data.inventory import faults
from lreid.data.schemes import Sources
from lreid.errors import InputError

NAMES = {
    "bounding_box_train": ["0010_c2s1_000001_01", "0002_c1s1_000451_03", "0007_c6s1_000001_01", "0007_c3s1_000001_01"],
    "query": ["0001_c1s1_001051_00", "0003_c3s1_001051_00"],
    "bounding_box_test": [
        *("0001_c2s1_000151_01", "0003_c1s1_000151_01", "0000_c1s1_000151_01", "-1_c1s1_000151_01"),
        "0003_c3s1_000151_02",
    ],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of Market-1501, as both read it."""
    for folder, names in NAMES.items():
        place = tmp_path / "market1501" / "Market-1501-v15.09.15" / folder
        place.mkdir(parents=True)
        for name in names:
            (place / f"{name}.jpg").touch()
    return tmp_path


def test_torchreid_reads_what_the_reader_of_market1501_reads(root: Path) -> None:
    pytest.importorskip("torchreid")
    ((theirs,), (ours,)) = (load_datasets(name, Sources(root)) for name in ("torchreid:market1501", "market1501"))
    for split in ("query", "gallery"):
        wanted = [record._replace(camid=record.camid - 1) for record in getattr(ours, split)]  # from 0
        assert list(getattr(theirs, split)) == wanted
    assert [(each.path, each.camid) for each in theirs.train] == [(each.path, each.camid - 1) for each in ours.train]
    numbers = {2: 4, 7: 5, 10: 6}  # in the same order, behind identity 3 of the test
    assert [each.pid for each in theirs.train] == [numbers[each.pid] for each in ours.train]
    assert faults(theirs) == faults(ours) == []


def test_a_folder_that_is_missing_is_not_downloaded(root: Path) -> None:
    pytest.importorskip("torchreid")
    with pytest.raises(InputError, match=r"^torchreid:market1501: no folder .*/none/market1501; put the data"):
        load_datasets("torchreid:market1501", Sources(root / "none"))
    with pytest.raises(InputError, match=r"^torchreid:market: torchreid has no such .*market1501"):
        load_datasets("torchreid:market", Sources(root))
    next((root / "market1501").glob("*/query")).rename(root / "elsewhere")
    with pytest.raises(InputError, match=r'^torchreid:market1501: torchreid cannot .*query" is not found') as error:
        load_datasets("torchreid:market1501", Sources(root))
    assert "\n" not in str(error.value)


def test_without_torchreid_it_is_asked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchreid"] or ["torchreid"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"torchreid.*: pip install 'lreid\[torchreid\]'$") as error:
        load_datasets("torchreid:market1501", Sources(root))
    assert "\n" not in str(error.value)
