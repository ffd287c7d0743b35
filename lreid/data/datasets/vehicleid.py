"""PKU VehicleID (Liu et al., Deep Relative Distance Learning: Tell the Difference Between Similar Vehicles, CVPR 2016).

    datasets/vehicleid/
    ├── image/    0000001.jpg …
    └── train_test_split/
        ├── train_list.txt           (113346 lines)
        └── test_list_800.txt, test_list_1600.txt, test_list_2400.txt

The folder may also be called `VehicleID_V1.0`. The data set has no cameras. The gallery has one random image of every
test vehicle, and the other images of the test vehicles are queries. VehicleID's paper averages figures over ten such
random galleries. To average over ten galleries, list the data set under `BENCHMARK.UNSEEN` and set `BENCHMARK.SPLITS
0`.
"""

from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy as np

from lreid.data.layout import read_lines
from lreid.data.records import CameraPolicy, DataSet, Record, cameras_of_test, grouped
from lreid.data.spec import Layout, Spec, published

Size = Literal["small", "medium", "large"]
SIZES: dict[Size, int] = {"small": 800, "medium": 1600, "large": 2400}


def read(home: Path, *, size: Size, split: int = 0, seed: int = 0, cameras: CameraPolicy = "apart") -> DataSet:
    """Read VehicleID with one of its test lists.

    The paper reports only Rank-k accuracy. Each query has exactly one match, so mAP is the mean of 1 / rank over the
    queries.

    Args:
        size: number of vehicles in the test list.
        cameras: rule for the camera numbers of queries and gallery, see :func:`lreid.data.records.cameras_of_test`.
    """
    files = {name: home / file for name, file in _lists(size).items()}
    train, test = (_read_list(file, home / "image") for file in files.values())
    rng = np.random.default_rng([seed, split])
    of_vehicle = grouped(test, attrgetter("pid"))
    gallery = {images[rng.integers(len(images))] for _, images in sorted(of_vehicle.items())}
    camid = cameras_of_test(cameras)
    return DataSet(
        f"vehicleid_{size}",
        train=tuple(train),
        query=tuple(record._replace(camid=camid["query"]) for record in test if record not in gallery),
        gallery=tuple(record._replace(camid=camid["gallery"]) for record in test if record in gallery),
        has_cameras=False,
    )


def _lists(size: Size) -> dict[str, str]:
    return {"train": "train_test_split/train_list.txt", "test": f"train_test_split/test_list_{SIZES[size]}.txt"}


def _read_list(file: Path, folder: Path) -> list[Record]:
    lines = read_lines(file, r"(?P<image>\d+)\s+(?P<pid>\d+)", "0000001 1")
    return sorted(Record(str(folder / f"{line['image']}.jpg"), int(line["pid"]), 0) for line in lines)


def _spec(size: Size, queries: int) -> Spec:
    return Spec(
        name=f"vehicleid_{size}",
        read=partial(read, size=size),
        title="VehicleID",
        source="https://www.pkuml.org/resources/pku-vehicleid.html",
        on_request=True,
        licence="research, non-commercial",
        layout=Layout(
            ("vehicleid/VehicleID_V1.0", "VehicleID_V1.0", "vehicleid"), ("image",), tuple(_lists(size).values())
        ),
        splits=10,
        cameras=False,
        published=published(train=(13164, 113346), query=(None, queries), gallery=(SIZES[size], SIZES[size])),
        remark="vehicles",
    )


SPECS = (_spec("small", 5693), _spec("medium", 11777), _spec("large", 17377))
