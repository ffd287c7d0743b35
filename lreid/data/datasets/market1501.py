"""Market-1501 (Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015)."""

from __future__ import annotations

from pathlib import Path

from lreid.data.datasets.layout import find_home, read_folders
from lreid.data.records import DataSet

FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
EXAMPLE = "0002_c1s1_000451_03.jpg"  # person 2, camera 1; person -1 is junk, 0 a distractor
PATTERN = r"(?P<pid>-1|\d+)_c(?P<camid>\d)"


def load(root: Path) -> DataSet:
    """Loads Market-1501 from ``root/market1501`` or from its archive's folder ``Market-1501-v15.09.15``.

    Published counts: train 751 identities / 12936 images, query 750 / 3368, gallery 15913 images with the
    distractors (identity 0) and without junk (-1); 6 cameras, numbered 1 to 6.

    Raises:
        InputError: the folder is missing or laid out differently, a file name is wrong, or a split is empty.
    """
    home = find_home(
        root,
        ["market1501/Market-1501-v15.09.15", "Market-1501-v15.09.15", "market1501"],
        folders=FOLDERS.values(),
        title="Market-1501",
        source="its authors (https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html)",
    )
    return read_folders("market1501", home, FOLDERS, PATTERN, EXAMPLE)
