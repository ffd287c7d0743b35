"""SenseReID (Zhao et al., Spindle Net: Person Re-Identification with Human Body Region Guided Feature
Decomposition and Fusion, CVPR 2017).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lreid.data.datasets.layout import find_home, read_folder, require_splits
from lreid.data.records import DataSet

FOLDERS = {"query": "test_probe", "gallery": "test_gallery"}
EXAMPLE = "00001_0.jpg"  # person 1, camera 0
PATTERN = r"(?P<pid>\d+)_(?P<camid>\d+)"


def load(root: Path) -> DataSet:
    """Loads SenseReID, which is for testing only, from ``root/sensereid/SenseReID``.

    Published counts: query 522 people / 1040 images, gallery 1717 / 3388; 2 cameras.

    Raises:
        InputError: the folder is missing or laid out differently, a file name is wrong, or a split is empty.
    """
    home = find_home(
        root,
        ["sensereid/SenseReID", "SenseReID", "sensereid"],
        folders=FOLDERS.values(),
        title="SenseReID",
        source="its authors (https://drive.google.com/file/d/0B56OfSrVI8hubVJLTzkwV2VaOWM/view)",
    )
    splits: dict[str, Any] = {
        split: tuple(read_folder(home / folder, PATTERN, EXAMPLE)) for split, folder in FOLDERS.items()
    }
    data_set = DataSet("sensereid", train=(), **splits)
    return require_splits(data_set, {split: home / folder for split, folder in FOLDERS.items()})
