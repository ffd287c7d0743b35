"""PRID 2011, single shot (Hirzer et al., Person Re-Identification by Descriptive and Discriminative
Classification, SCIA 2011).
"""

from __future__ import annotations

from pathlib import Path

from lreid.data.datasets.layout import find_home, random_half, read_folder, require_splits
from lreid.data.records import DataSet

FOLDERS = {1: "cam_a", 2: "cam_b"}
EXAMPLE = "person_0001.png"
PATTERN = r"person_(?P<pid>\d+)"
SHARED = 200  # people 1 to 200 were seen by both cameras; above, a number means another person in each


def load(root: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Loads one of 10 splits of PRID 2011 (single shot) from ``root/prid2011/prid_2011/single_shot``.

    Published counts: 385 people by camera A, 749 by camera B, one image each; people 1 to 200 by both. Of these,
    100 are trained on (200 images) and 100 are queries by camera A; the gallery is camera B of those 100 and
    of the 549 people that only B saw (649). The others of camera A are not used.

    The splits of others were drawn without a seed, so these are lreid's own.

    Args:
        root: where the data sets lie.
        split: 0 to 9.
        seed: other splits for another seed.

    Raises:
        InputError: a folder is missing or laid out differently, or a split is empty.
    """
    home = find_home(
        root,
        ["prid2011/prid_2011/single_shot", "prid2011/single_shot", "prid_2011/single_shot"],
        folders=FOLDERS.values(),
        title="PRID 2011",
        source="its authors (https://www.tugraz.at/institute/icg/research/team-bischof/lrs/downloads/PRID11/)",
    )
    first, second = (
        read_folder(home / folder, PATTERN, EXAMPLE, suffix=".png", camid=camid) for camid, folder in FOLDERS.items()
    )
    shared = [record for record in first if record.pid <= SHARED]
    trained = random_half((record.pid for record in shared), seed=[seed, split])
    data_set = DataSet(
        "prid2011",
        train=tuple(record for record in shared + second if record.pid in trained),
        query=tuple(record for record in shared if record.pid not in trained),
        gallery=tuple(record for record in second if record.pid not in trained),
    )
    return require_splits(data_set, dict.fromkeys(("train", "query", "gallery"), home))
