"""VERI-Wild (Lou et al., A Large Dataset and a New Method for Vehicle Re-Identification in the Wild, CVPR 2019).

    datasets/VERI-Wild/
    ├── images/00001/000001.jpg …
    └── train_test_split/
        ├── train_list.txt           (277797 lines)
        ├── test_3000_query.txt, test_3000.txt, …
        └── vehicle_info.txt

Licence plates are masked. There are 174 cameras.
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from lreid.data.layout import read_lines
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError

CAMERAS = "train_test_split/vehicle_info.txt"
LINE = r"(?P<image>(?P<pid>\d+)/\d+)(\.jpg)?"  # of a list: a vehicle's folder and an image in it
Size = Literal["small", "medium", "large"]
SIZES: dict[Size, int] = {"small": 3000, "medium": 5000, "large": 10000}


def read(home: Path, *, size: Size) -> DataSet:
    """Read VERI-Wild with one of its test lists; ``vehicle_info.txt`` contains the camera of every image.

    Args:
        size: number of vehicles in the test lists.
    """
    files = {split: home / name for split, name in _lists(size).items()}
    cameras = _read_cameras(home / CAMERAS)
    splits: dict[str, Any] = {split: tuple(_read_list(file, home / "images", cameras)) for split, file in files.items()}
    return DataSet(f"veri_wild_{size}", **splits)


def _lists(size: Size) -> dict[str, str]:
    names = {"train": "train_list", "query": f"test_{SIZES[size]}_query", "gallery": f"test_{SIZES[size]}"}
    return {split: f"train_test_split/{name}.txt" for split, name in names.items()}


def _read_cameras(file: Path) -> dict[str, int]:
    """Read the camera of every image ``vehicle/image``; the first line of the file names the columns."""
    lines = read_lines(file, r"(?P<image>\d+/\d+);(?P<camid>\d+)(;.*)?", "00001/000001;1;2018-03-11 …", first=2)
    return {line["image"]: int(line["camid"]) for line in lines}


def _read_list(file: Path, folder: Path, cameras: dict[str, int]) -> list[Record]:
    images = [(line["image"], int(line["pid"])) for line in read_lines(file, LINE, "00001/000001")]
    if unknown := next((image for image, _ in images if image not in cameras), None):
        raise InputError(f"{file}: {unknown!r} is not in vehicle_info.txt; take both files from the same archive")
    return sorted(Record(str(folder / f"{image}.jpg"), pid, cameras[image]) for image, pid in images)


def _spec(size: Size, gallery: int) -> Spec:
    return Spec(
        name=f"veri_wild_{size}",
        read=partial(read, size=size),
        title="VERI-Wild",
        source="https://github.com/PKU-IMRE/VERI-Wild",
        on_request=True,
        licence="research, non-commercial",
        layout=Layout(
            ("VERI-Wild", "veri_wild", "veri_wild/VERI-Wild"), ("images",), (*_lists(size).values(), CAMERAS)
        ),
        folder="veri_wild",
        published=published(train=(30671, 277797), query=(SIZES[size], SIZES[size]), gallery=(None, gallery)),
        remark="vehicles",
    )


SPECS = (_spec("small", 38861), _spec("medium", 64389), _spec("large", 128517))
