"""MNIST (LeCun et al., Gradient-Based Learning Applied to Document Recognition, Proceedings of the IEEE 1998).

    datasets/mnist/
    ├── train-images-idx3-ubyte
    ├── train-labels-idx1-ubyte
    ├── t10k-images-idx3-ubyte
    └── t10k-labels-idx1-ubyte

The data set is for classification: ten handwritten digits, 28 x 28 pixels. torchvision reads the files, which must be
unpacked; its folder `MNIST/raw` is supported too. On first use, lreid unpacks the images as PNG files into
`images/train/DIGIT/` and `images/test/DIGIT/` next to these files. The name `rotated:DEGREES:mnist` means rotated
MNIST, see `configs/benchmarks/rotated-mnist.yaml`.
"""

from pathlib import Path
from typing import Any

from lreid.classification.image_folder import read_by_torchvision
from lreid.data.spec import CameraPolicy, DataSet, Layout, Spec, published


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read MNIST, after unpacking its images if necessary."""

    def split_of(torchvision: Any, split: str) -> Any:
        in_home = type("MNIST", (torchvision.MNIST,), {"raw_folder": str(home)})  # instead of a folder MNIST/raw
        return in_home(home, train=split == "train")

    return read_by_torchvision("mnist", home, split_of, lambda split, label: str(label), cameras=cameras)


SPECS = (
    Spec(
        name="mnist",
        read=read,
        title="MNIST",
        source="https://yann.lecun.org/exdb/mnist/",
        layout=Layout(("mnist", "MNIST/raw", "mnist/MNIST/raw")),
        cameras=False,
        published=published(train=(10, 60000), query=(10, 5001), gallery=(10, 4999)),
        remark="classes",
    ),
)
