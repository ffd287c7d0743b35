"""VERI-Wild (Lou et al., VERI-Wild: A Large Dataset and a New Method for Vehicle Re-Identification in the
Wild, CVPR 2019).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from lreid.data.datasets.layout import find_home, require_splits
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

SIZES = {"small": 3000, "medium": 5000, "large": 10000}


def load(root: Path, *, size: Literal["small", "medium", "large"]) -> DataSet:
    """Loads VERI-Wild with one of its test lists from ``root/VERI-Wild`` or ``root/veri_wild``.

    Published counts: train 30671 vehicles / 277797 images; query and gallery 3000 / 3000 and 38861 (small), 5000 /
    5000 and 64389 (medium), 10000 / 10000 and 128517 (large); 174 cameras, listed in ``vehicle_info.txt``.

    Args:
        root: where the data sets lie.
        size: of the test lists.

    Raises:
        InputError: a folder or list is missing, a list has a faulty line, names an image that
            ``vehicle_info.txt`` does not know, or a split is empty.
    """
    lists = {"train": "train_list.txt", "query": f"test_{SIZES[size]}_query.txt", "gallery": f"test_{SIZES[size]}.txt"}
    home = find_home(
        root,
        ["VERI-Wild", "veri_wild", "veri_wild/VERI-Wild"],
        folders=["images"],
        files=[f"train_test_split/{name}" for name in (*lists.values(), "vehicle_info.txt")],
        title="VERI-Wild",
        source="its authors (https://github.com/PKU-IMRE/VERI-Wild, on request)",
    )
    files = {split: home / "train_test_split" / name for split, name in lists.items()}
    cameras = _read_cameras(home / "train_test_split" / "vehicle_info.txt")
    splits: dict[str, Any] = {split: tuple(_read_list(file, home / "images", cameras)) for split, file in files.items()}
    return require_splits(DataSet(f"veri_wild_{size}", **splits), files)


def _read_cameras(file: Path) -> dict[str, int]:
    """The camera of every image ``vehicle/image``; the first line names the columns."""
    cameras = {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        match = re.match(r"(?P<image>\d+/\d+);(?P<camid>\d+)(;|$)", line)
        if match is None:
            raise InputError(
                f"{file}:{number}: unexpected line {line.strip()!r}; expected one like "
                "'00001/000001;1;2018-03-11 …': take the file from the archive again"
            )
        cameras[match["image"]] = int(match["camid"])
    return cameras


def _read_list(file: Path, folder: Path, cameras: dict[str, int]) -> list[Record]:
    records = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        image = line.strip().removesuffix(".jpg")
        if not image:
            continue
        if image not in cameras:
            raise InputError(
                f"{file}:{number}: {line.strip()!r} is not in vehicle_info.txt; take both files from the same archive"
            )
        records.append(Record(str(folder / f"{image}.jpg"), int(image.partition("/")[0]), cameras[image]))
    return sorted(records)
