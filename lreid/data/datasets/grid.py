"""QMUL underground re-identification, GRID (Loy et al., Multi-Camera Activity Correlation Analysis, CVPR 2009)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lreid.data.datasets.layout import find_home, read_folder, require_splits
from lreid.data.datasets.matlab import read_matlab
from lreid.data.records import DataSet
from lreid.errors import InputError

EXAMPLE = "0001_1_25004_107_32_106_221.jpeg"  # person 1, camera 1; person 0 is a distractor
PATTERN = r"(?P<pid>\d+)_(?P<camid>\d+)_"
PARTITIONS = "features_and_partitions.mat"


def load(root: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Loads one of the 10 published partitions of GRID from ``root/grid/underground_reid``.

    Published counts: 250 people, one probe and one gallery image of each, and 775 gallery images of others
    (identity 0); 8 cameras. 125 people are trained on (250 images), the probes of the others are the queries
    (125), and their gallery images together with those of identity 0 the gallery (900).

    Args:
        root: where the data sets lie.
        split: 0 to 9.
        seed: not used, since the partitions come with the data set.

    Raises:
        InputError: a folder or the file of partitions is missing, or laid out differently.
    """
    home = find_home(
        root,
        ["grid/underground_reid", "underground_reid", "grid"],
        folders=["probe", "gallery"],
        files=[PARTITIONS],
        title="GRID",
        source="its authors (https://personal.ie.cuhk.edu.hk/~ccloy/downloads_qmul_underground_reid.html)",
    )
    probe, gallery = (read_folder(home / folder, PATTERN, EXAMPLE, suffix=".jpeg") for folder in ("probe", "gallery"))
    trained = _trained(home / PARTITIONS, split)
    data_set = DataSet(
        "grid",
        train=tuple(record for record in probe + gallery if record.pid in trained),
        query=tuple(record for record in probe if record.pid not in trained),
        gallery=tuple(record for record in gallery if record.pid not in trained),
    )
    return require_splits(data_set, {"train": home, "query": home / "probe", "gallery": home / "gallery"})


def _trained(file: Path, split: int) -> set[int]:
    """The people that a published partition trains on: the third field of an element of ``trainIdxAll``."""
    try:
        fields = list(read_matlab(file)["trainIdxAll"][split].values())
        return {int(pid) for pid in np.ravel(fields[2])}
    except (KeyError, IndexError, AttributeError, TypeError, ValueError):
        raise InputError(
            f"{file}: has no partition {split} in trainIdxAll; take the file from the archive again"
        ) from None
