"""VeRi-776 (Liu et al., A Deep Learning-Based Approach to Progressive Vehicle Re-ID, ECCV 2016)."""

from __future__ import annotations

from pathlib import Path

from lreid.data.datasets.layout import find_home, read_folders
from lreid.data.records import DataSet

FOLDERS = {"train": "image_train", "query": "image_query", "gallery": "image_test"}
EXAMPLE = "0001_c001_00016450_0.jpg"  # vehicle 1, camera 1
PATTERN = r"(?P<pid>-1|\d+)_c(?P<camid>\d+)"


def load(root: Path) -> DataSet:
    """Loads VeRi-776 from ``root/veri`` or ``root/VeRi``.

    Published counts: train 576 identities / 37778 images, query 200 / 1678, gallery 200 / 11579; 20 cameras,
    numbered 1 to 20. Queries are looked for image by image, not track by track.

    Raises:
        InputError: the folder is missing or laid out differently, a file name is wrong, or a split is empty.
    """
    home = find_home(
        root,
        ["veri", "VeRi", "veri/VeRi"],
        folders=FOLDERS.values(),
        title="VeRi-776",
        source="its authors (https://vehiclereid.github.io/VeRi/, on request)",
    )
    return read_folders("veri776", home, FOLDERS, PATTERN, EXAMPLE)
