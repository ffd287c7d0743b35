"""GRID, QMUL underground re-identification (Loy et al., Multi-Camera Activity Correlation Analysis, CVPR 2009).

    datasets/grid/underground_reid/{probe,gallery}/      0001_1_25004_107_32_106_221.jpeg …      (250 and 1025 images)
    datasets/grid/underground_reid/features_and_partitions.mat

`features_and_partitions.mat` contains ten published splits. The 775 images of person `0000` are distractors.
"""

from pathlib import Path

import numpy as np

from lreid.data.layout import read_folder, split_by_identity
from lreid.data.matlab import read_matlab
from lreid.data.spec import DataSet, Layout, Spec, published
from lreid.utils.reading import naming_damage

EXAMPLE = "0001_1_25004_107_32_106_221.jpeg"  # person 1, camera 1; person 0 is a distractor
PATTERN = r"(?P<pid>\d+)_(?P<camid>\d+)(?:_-?\d+)+"
PARTITIONS = "features_and_partitions.mat"


def read(home: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of the 10 published splits of GRID.

    Each person has one probe image and one gallery image. 125 people are for training. The probe images of the test
    people are the queries. The gallery consists of the distractors and of the gallery images of the test people.
    """
    probe, gallery = (read_folder(home / folder, PATTERN, EXAMPLE) for folder in ("probe", "gallery"))
    file, fault = home / PARTITIONS, f"has no partition {split} in trainIdxAll"
    with naming_damage(file, fault, "take the file from the archive again"):
        _, _, people, *_ = read_matlab(file)["trainIdxAll"][split].values()
        trained = {int(pid) for pid in np.ravel(people)}
    return split_by_identity("grid", trained, probe + gallery, probe, gallery)


SPECS = (
    Spec(
        name="grid",
        read=read,
        title="GRID",
        source="https://personal.ie.cuhk.edu.hk/~ccloy/downloads_qmul_underground_reid.html",
        licence="none stated; for research",
        layout=Layout(("grid/underground_reid", "underground_reid", "grid"), ("probe", "gallery"), (PARTITIONS,)),
        splits=10,
        published=published(train=(125, 250), query=(125, 125), gallery=(126, 900), cameras=8),
    ),
)
