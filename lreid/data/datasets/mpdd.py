"""MPDD (He et al., Multi-Pose Dog Dataset, Mendeley Data 2023).

    datasets/mpdd/MPDD/pytorch/
    ├── train/      0_c1s1_1.jpg …   (921 images: dog, camera, sequence, number)
    ├── query/      (104)
    └── gallery/    (521)

The archive contains a second archive, `MPDD.zip`, which must also be unpacked. lreid does not read the folder `val`,
which has more images of the training dogs. Images show whole dogs in several poses. The authors do not explain what the
camera numbers in file names mean.
"""

from pathlib import Path
from typing import Any

from lreid.data.layout import read_folder
from lreid.data.spec import SPLITS, DataSet, Layout, Spec, published

EXAMPLE = "0_c1s1_1.jpg"  # dog 0, camera 1
PATTERN = r"(?P<pid>\d+)_c(?P<camid>\d+)_?s\d+_\d+"  # one query is named 146_c1_s3_1


def read(home: Path) -> DataSet:
    """Read MPDD with the cameras in file names; dogs are numbered from 1, because 0 means distractors."""
    splits: dict[str, Any] = {
        split: tuple(dog._replace(pid=dog.pid + 1) for dog in read_folder(home / split, PATTERN, EXAMPLE))
        for split in SPLITS
    }
    return DataSet("mpdd", **splits)


SPECS = (
    Spec(
        name="mpdd",
        read=read,
        title="MPDD",
        source="https://data.mendeley.com/datasets/v5j6m8dzhv/1",
        licence="CC BY 4.0",
        layout=Layout(("mpdd/MPDD/pytorch", "mpdd/pytorch", "MPDD/pytorch"), SPLITS),
        published=published(train=(95, 921), query=(96, 104), gallery=(96, 521)),
        remark="dogs",
    ),
)
