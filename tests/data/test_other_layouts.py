"""Lists of images that lie in other folders or are Parquet, and images of phones."""

from pathlib import Path

import numpy as np
import pytest
from conftest import MakeImages
from PIL import Image

from lreid.data import listing
from lreid.data.custom import read_custom
from lreid.data.datasets import Sources, load_datasets
from lreid.data.images import FORMATS, read_image
from lreid.data.listing import HEIF, list_labelled
from lreid.data.tables import csv_tests, read_table
from lreid.errors import InputError
from lreid.gallery.images import list_images

NAMES = [f"{person}/{number}.png" for person in ("anna", "ben", "carl", "dora") for number in range(3)]


@pytest.fixture
def nas(tmp_path: Path, make_images: MakeImages) -> Path:
    make_images(tmp_path / "nas", NAMES)
    (tmp_path / "lists").mkdir()
    return tmp_path / "nas"


def write(file: Path, rows: list[str]) -> Path:
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize("absolute", [True, False])
def test_a_list_may_name_images_of_the_root(nas: Path, absolute: bool) -> None:
    paths = [str(nas / name) if absolute else name for name in NAMES]
    rows = [f"{path},{name.partition('/')[0]}" for path, name in zip(paths, NAMES, strict=True)]
    file = write(nas.parent / "lists" / "own.csv", ["path,pid", *rows])
    expected = sorted(str(nas / name) for name in NAMES)
    (own,) = read_custom(file, Sources(nas))
    records = [*own.data_set.train, *own.data_set.query, *own.data_set.gallery]
    assert sorted(record.path for record in records) == expected
    assert sorted(image.path for image in list_images([file], "gallery", Sources(nas))) == expected
    splits = ["query", "gallery", "gallery"] * 4
    rows_with_splits = [f"{row},{split}" for row, split in zip(rows, splits, strict=True)]
    file = write(nas.parent / "lists" / "test.csv", ["path,pid,split", *rows_with_splits])
    (data_set,) = load_datasets(f"csv:{file}", Sources(nas))
    (test,) = csv_tests(file, nas)
    for found in (data_set, test):
        assert sorted(record.path for record in (*found.query, *found.gallery)) == expected


def test_images_outside_the_allowed_folders_raise_an_error(nas: Path, tmp_path: Path) -> None:
    outside = [nas / "anna" / "0.png", tmp_path / "nasty" / "x.png", nas / ".." / "nasty" / "x.png", "/etc/passwd"]
    for path in outside:
        file = write(tmp_path / "lists" / "own.csv", ["path,pid", f"{path},anna"])
        allowed = nas if path != outside[0] else None
        with pytest.raises(InputError, match=r"own.csv:2: .* lies outside .*root='DIR'"):
            read_table(file, splits=False, root=allowed)
        with pytest.raises(InputError, match="lies outside"):
            list_images([file], "gallery", Sources(tmp_path / "lists"))


def test_the_folder_of_the_list_comes_first(nas: Path, make_images: MakeImages) -> None:
    make_images(nas.parent / "lists", ["anna/0.png"])
    file = write(nas.parent / "lists" / "own.csv", ["path,pid", "anna/0.png,anna", "anna/1.png,anna"])
    rows = read_table(file, splits=False, root=nas)
    assert [file.parent / row.path for row in rows] == [file.parent / "anna/0.png", nas / "anna/1.png"]


def test_parquet_equals_csv(nas: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {
            "path": NAMES,
            "pid": [name.partition("/")[0] for name in NAMES],
            "camid": [1, 2, None] * 4,
            "time": range(12),
            "score": np.linspace(0, 1, 12),
        }
    )
    frame.to_csv(nas / "own.csv", index=False)
    frame.to_parquet(nas / "own.parquet")
    assert read_table(nas / "own.parquet", splits=False) == [
        row._replace(domain="own") for row in read_table(nas / "own.csv", splits=False)
    ]
    (nas / "own.parquet").write_bytes((nas / "own.parquet").read_bytes()[:-9])
    with pytest.raises(InputError, match="own.parquet: "):
        list_images([nas / "own.parquet"], "gallery")


@pytest.mark.skipif(not HEIF, reason="needs lreid[heif]")
def test_formats_of_phones_are_read(tmp_path: Path) -> None:
    pixels = np.full((64, 32, 3), (200, 100, 50), np.uint8)
    (tmp_path / "anna").mkdir()
    for name, kind in (("0.heic", "HEIF"), ("1.HEIF", "HEIF"), ("2.avif", "AVIF"), ("3.jfif", "JPEG")):
        if kind in FORMATS:
            Image.fromarray(pixels).save(tmp_path / "anna" / name, kind)
            assert np.abs(read_image(tmp_path / "anna" / name).astype(int) - pixels).max() < 12
    assert len(list_labelled(tmp_path)) == len([*(tmp_path / "anna").iterdir()])
    (tmp_path / "anna" / "0.heic").write_bytes((tmp_path / "anna" / "0.heic").read_bytes()[:100])
    with pytest.raises(InputError, match="0.heic: "):
        read_image(tmp_path / "anna" / "0.heic")


def test_without_heif_plugin_files_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "HEIF", False)
    monkeypatch.setattr(listing, "SUFFIXES", (".png",))
    (tmp_path / "anna").mkdir()
    (tmp_path / "anna" / "0.heic").touch()
    Image.new("RGB", (4, 8)).save(tmp_path / "anna" / "1.png")
    assert len(list_labelled(tmp_path)) == 1
    assert ".heic: 1" in caplog.text and "lreid[heif]" in caplog.text
