"""SVHN (Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS Workshop 2011).

    datasets/svhn/
    ├── train_32x32.mat
    └── test_32x32.mat

The data set is for classification: ten digits of house numbers, 32 x 32 pixels ("format 2", cropped). On first use,
lreid unpacks the images as PNG files into `images/train/DIGIT/` and `images/test/DIGIT/` next to these files. The digit
0 has the label 10 in the files of SVHN.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lreid.classification.image_folder import Unpacked, unpacked
from lreid.data.matlab import read_matlab
from lreid.data.records import CameraPolicy, DataSet
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError

FILES = {split: f"{split}_32x32.mat" for split in ("train", "test")}


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read SVHN, after unpacking its images if necessary."""
    return unpacked("svhn", home, lambda: _images(home), cameras=cameras)


def _images(home: Path) -> Iterator[Unpacked]:
    for split, name in FILES.items():
        content = read_matlab(home / name)
        pixels, labels = np.asarray(content.get("X")), np.ravel(content.get("y", []))  # (32, 32, 3, n), (n,)
        if pixels.shape != (32, 32, 3, len(labels)) or pixels.dtype != np.uint8 or not set(labels) <= {*range(11)}:
            raise InputError(f"{home / name}: is not the cropped digits of SVHN; put {name} of its authors there")
        yield from ((split, str(label % 10), pixels[..., row]) for row, label in enumerate(labels))


SPECS = (
    Spec(
        name="svhn",
        read=read,
        title="SVHN",
        source="https://ufldl.stanford.edu/housenumbers/",
        licence="non-commercial",
        layout=Layout(("svhn", "SVHN"), files=tuple(FILES.values())),
        folder="svhn",
        cameras=False,
        published=published(train=(10, 73257), query=(10, 13019), gallery=(10, 13013)),
        remark="classes",
    ),
)
