"""CUHK01 (Li et al., Human Reidentification with Transferred Metric Learning, ACCV 2012)."""

from __future__ import annotations

from pathlib import Path

from lreid.data.datasets.layout import find_home, random_half, read_folder, require_splits
from lreid.data.records import DataSet

EXAMPLE = "0001001.png"  # person 1, image 1
PATTERN = r"(?P<pid>\d{4})(?P<camid>\d{3})"


def load(root: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Loads one of 20 splits of CUHK01 from ``root/cuhk01/campus``.

    Published counts: 971 people, 3884 images: 1 and 2 of a person are by one camera, 3 and 4 by the other. 485
    people are trained on (1940 images), the others are queries by one camera (972) and the gallery by the
    other (972). Splits ``2 k`` and ``2 k + 1`` hold the same people with the cameras swapped.

    The splits of others were drawn without a seed, so these are lreid's own. CUHK02 holds the same people.

    Args:
        root: where the data sets lie.
        split: 0 to 19.
        seed: other splits for another seed.

    Raises:
        InputError: the folder is missing, a file name is wrong, or a split is empty.
    """
    home = find_home(
        root,
        ["cuhk01", "CUHK01"],
        folders=["campus"],
        title="CUHK01",
        source="its authors (https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html, on request)",
    )
    records = [
        record._replace(camid=(record.camid + 1) // 2)  # 1, 2, 3, 4 -> 1, 1, 2, 2
        for record in read_folder(home / "campus", PATTERN, EXAMPLE, suffix=".png")
    ]
    trained = random_half((record.pid for record in records), seed=[seed, split // 2])
    tested = [record for record in records if record.pid not in trained]
    query_camera = 1 + split % 2
    data_set = DataSet(
        "cuhk01",
        train=tuple(record for record in records if record.pid in trained),
        query=tuple(record for record in tested if record.camid == query_camera),
        gallery=tuple(record for record in tested if record.camid != query_camera),
    )
    return require_splits(data_set, dict.fromkeys(("train", "query", "gallery"), home / "campus"))
