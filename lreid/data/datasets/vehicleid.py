"""PKU VehicleID (Liu et al., Deep Relative Distance Learning: Tell the Difference Between Similar Vehicles,
CVPR 2016).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np

from lreid.data.datasets.layout import CameraPolicy, cameras_of_test, find_home, require_splits
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

SIZES = {"small": 800, "medium": 1600, "large": 2400}


def load(
    root: Path,
    *,
    size: Literal["small", "medium", "large"],
    split: int = 0,
    seed: int = 0,
    cameras: CameraPolicy = "apart",
) -> DataSet:
    """Loads VehicleID with one of its test lists from ``root/vehicleid`` or ``root/VehicleID_V1.0``.

    Published counts: train 13164 vehicles / 113346 images; test 800 / 6493 (small), 1600 / 13377 (medium), 2400 /
    19777 (large). One image of every test vehicle, drawn at random, is the gallery and all others are queries;
    figures are averaged over 10 such draws. The paper counts hits alone (Rank-k): with one match a query,
    mAP is the mean of 1 / rank.

    There are no camera numbers; see ``cameras``.

    Args:
        root: where the data sets lie.
        size: of the test list.
        split: which draw, 0 to 9.
        seed: other draws for another seed.
        cameras: see :func:`lreid.data.datasets.layout.cameras_of_test`.

    Raises:
        InputError: a folder or list is missing, a list has a faulty line, or a split is empty.
    """
    lists = {"train": "train_list.txt", "test": f"test_list_{SIZES[size]}.txt"}
    home = find_home(
        root,
        ["vehicleid/VehicleID_V1.0", "VehicleID_V1.0", "vehicleid"],
        folders=["image"],
        files=[f"train_test_split/{name}" for name in lists.values()],
        title="VehicleID",
        source="its authors (https://www.pkuml.org/resources/pku-vehicleid.html, on request)",
    )
    files = {name: home / "train_test_split" / file for name, file in lists.items()}
    train, test = (_read_list(file, home / "image") for file in files.values())
    rng = np.random.default_rng([seed, split])
    of_vehicle: dict[int, list[Record]] = {}
    for record in test:
        of_vehicle.setdefault(record.pid, []).append(record)
    gallery = {images[rng.integers(len(images))] for _, images in sorted(of_vehicle.items())}
    query_camera, gallery_camera = cameras_of_test(cameras)
    data_set = DataSet(
        f"vehicleid_{size}",
        train=tuple(train),
        query=tuple(record._replace(camid=query_camera) for record in test if record not in gallery),
        gallery=tuple(record._replace(camid=gallery_camera) for record in test if record in gallery),
    )
    return require_splits(data_set, {"train": files["train"], "query": files["test"], "gallery": files["test"]})


def _read_list(file: Path, folder: Path) -> list[Record]:
    records = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        match = re.fullmatch(r"(?P<image>\d+)\s+(?P<pid>\d+)", line.strip())
        if match is None:
            raise InputError(
                f"{file}:{number}: unexpected line {line.strip()!r}; expected an image and a vehicle like "
                "'0000001 1': take the list from the archive again"
            )
        records.append(Record(str(folder / f"{match['image']}.jpg"), int(match["pid"]), 0))
    return sorted(records)
