"""SVHN (Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS Workshop 2011).

    datasets/svhn/
    ├── train_32x32.mat
    └── test_32x32.mat

The data set is for classification: ten digits of house numbers, 32 x 32 pixels ("format 2", cropped). torchvision reads
the files and verifies their checksums. On first use, lreid unpacks the images as PNG files into `images/train/DIGIT/`
and `images/test/DIGIT/` next to these files.
"""

from pathlib import Path
from typing import Any

from lreid.classification.image_folder import read_by_torchvision
from lreid.data.spec import CameraPolicy, DataSet, Layout, Spec, published
from lreid.utils.extras import Extra


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read SVHN, after unpacking its images if necessary."""

    def split_of(torchvision: Any, split: str) -> Any:
        Extra("scipy.io", "matlab").load()  # torchvision needs it
        return torchvision.SVHN(home, split=split)

    return read_by_torchvision("svhn", home, split_of, lambda split, label: str(label), cameras=cameras)


SPECS = (
    Spec(
        name="svhn",
        read=read,
        title="SVHN",
        source="https://ufldl.stanford.edu/housenumbers/",
        licence="non-commercial",
        layout=Layout(("svhn", "SVHN"), files=("train_32x32.mat", "test_32x32.mat")),
        cameras=False,
        published=published(train=(10, 73257), query=(10, 13019), gallery=(10, 13013)),
        remark="classes",
    ),
)
