"""CIFAR-10 and CIFAR-100 (Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009).

    datasets/cifar10/cifar-10-batches-py/        datasets/cifar100/cifar-100-python/
    ├── data_batch_1 … data_batch_5              ├── train
    ├── test_batch                               ├── test
    └── batches.meta                             └── meta

The data sets are for classification, not for re-identification. Both data sets show classes of objects in images of 32
x 32 pixels; each class has training and test images. torchvision reads the archives for Python and verifies their
checksums. On first use, lreid unpacks the images as PNG files into `images/train/CLASS/` and `images/test/CLASS/` next
to the archive. For CIFAR-100, lreid uses the 100 fine classes. The order of the classes in training is the order of
their labels.
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from lreid.classification.image_folder import read_by_torchvision
from lreid.data.spec import CameraPolicy, DataSet, Layout, Spec, published


def read(home: Path, *, classes: Literal[10, 100], cameras: CameraPolicy = "apart") -> DataSet:
    """Read a data set of 10 or 100 classes, named like ``07_horse`` so that they sort by label."""

    def split_of(torchvision: Any, split: str) -> Any:
        return getattr(torchvision, f"CIFAR{classes}")(home.parent, train=split == "train")

    def class_of(split: Any, label: int) -> str:
        return f"{label:02d}_{split.classes[label]}"

    return read_by_torchvision(f"cifar{classes}", home, split_of, class_of, cameras=cameras)


def _spec(classes: Literal[10, 100], folder: str) -> Spec:
    return Spec(
        name=f"cifar{classes}",
        read=partial(read, classes=classes),
        title=f"CIFAR-{classes}",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
        layout=Layout((f"cifar{classes}/{folder}", folder)),
        cameras=False,
        published=published(train=(classes, 50000), query=(classes, 5000), gallery=(classes, 5000)),
        remark="classes",
    )


SPECS = (_spec(10, "cifar-10-batches-py"), _spec(100, "cifar-100-python"))
