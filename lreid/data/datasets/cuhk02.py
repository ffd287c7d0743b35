"""CUHK02 (Li and Wang, Locally Aligned Feature Transforms across Views, CVPR 2013)."""

from __future__ import annotations

from pathlib import Path

from lreid.data.datasets.layout import find_home, read_folder, require_splits
from lreid.data.records import DataSet, Record

PAIRS = ("P1", "P2", "P3", "P4", "P5")  # pairs of cameras; the last one is tested on
EXAMPLE = "001_0001.png"  # person 1 of the pair
PATTERN = r"(?P<pid>\d+)_"


def load(root: Path) -> DataSet:
    """Loads CUHK02 from ``root/cuhk02/Dataset``.

    Published counts: 1816 people by five pairs of cameras (971, 306, 107, 193, 239), two images by each camera.
    Pairs P1 to P4 are trained on (1577 people, 6308 images); of P5, camera 1 is the query (239 / 478) and
    camera 2 the gallery (239 / 478). Every pair numbers its people from 1 again: person ``n`` of pair ``p``
    gets the identity ``10000 p + n``. Cameras are numbered 1 to 10.

    P1 holds the people of CUHK01.

    Raises:
        InputError: a folder is missing or laid out differently, a file name is wrong, or a split is empty.
    """
    home = find_home(
        root,
        ["cuhk02/Dataset", "cuhk02", "CUHK02/Dataset"],
        folders=[f"{pair}/cam{camera}" for pair in PAIRS for camera in (1, 2)],
        title="CUHK02",
        source="its authors (https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html, on request)",
    )
    views: list[list[Record]] = []
    for number, pair in enumerate(PAIRS, start=1):
        for camera in (1, 2):
            records = read_folder(
                home / pair / f"cam{camera}", PATTERN, EXAMPLE, suffix=".png", camid=2 * number - 2 + camera
            )
            views.append([record._replace(pid=10000 * number + record.pid) for record in records])
    *trained, query, gallery = views
    data_set = DataSet("cuhk02", tuple(record for view in trained for record in view), tuple(query), tuple(gallery))
    sources = {"train": home, "query": home / "P5" / "cam1", "gallery": home / "P5" / "cam2"}
    return require_splits(data_set, sources)
