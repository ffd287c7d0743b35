"""MNIST (LeCun et al., Gradient-Based Learning Applied to Document Recognition, Proceedings of the IEEE 1998).

    datasets/mnist/
    ├── train-images-idx3-ubyte                  (or with the suffix .gz)
    ├── train-labels-idx1-ubyte
    ├── t10k-images-idx3-ubyte
    └── t10k-labels-idx1-ubyte

The data set is for classification: ten handwritten digits, 28 x 28 pixels. torchvision's folder `MNIST/raw` is
supported too. On first use, lreid unpacks the images as PNG files into `images/train/DIGIT/` and `images/test/DIGIT/`
next to these files. The name `rotated:DEGREES:mnist` means rotated MNIST, see `configs/benchmarks/rotated-mnist.yaml`.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lreid.classification.image_folder import Unpacked, unpacked
from lreid.data.layout import describe_folder
from lreid.data.records import CameraPolicy, DataSet
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError, raise_if_out_of_memory

SPLITS = {"train": "train", "test": "t10k"}
CLASSES = 10
PIXELS = (28, 28)


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read MNIST, after unpacking its images if necessary."""
    return unpacked("mnist", home, lambda: _images(home), cameras=cameras)


def _images(home: Path) -> Iterator[Unpacked]:
    for split, name in SPLITS.items():
        images, labels = _idx(home, f"{name}-images-idx3-ubyte", 3), _idx(home, f"{name}-labels-idx1-ubyte", 1)
        if images.shape[1:] != PIXELS:
            size = " x ".join(map(str, images.shape[1:]))
            raise InputError(f"{home}: images of {size} in {name}; MNIST's are 28 x 28: is it another data set?")
        if len(images) != len(labels):
            raise InputError(
                f"{home}: {len(images)} images and {len(labels)} labels in {name}; download the files again"
            )
        if len(labels) and labels.max() >= CLASSES:
            raise InputError(
                f"{home}: label {labels.max()} in {name}; MNIST has {CLASSES} digits: is it another data set?"
            )
        yield from ((split, str(label), image) for image, label in zip(images, labels, strict=True))


def _idx(home: Path, name: str, axes: int) -> np.ndarray:
    """Read an idx file: the bytes 0 0 8 AXES, the size of every axis as a big-endian 4-byte number, then the values."""
    file = next((home / each for each in (name, f"{name}.gz") if (home / each).is_file()), None)
    if file is None:
        raise InputError(f"MNIST: {home} lacks {name}; {describe_folder(home)}; put the four original files there")
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, ValueError) as error:
        raise_if_out_of_memory(error, file)
        raise InputError(f"{file}: cannot be read ({error}); download it again") from None
    head = 4 + 4 * axes
    if len(content) < head or content[:4] != bytes([0, 0, 8, axes]):
        raise InputError(f"{file}: is not an idx file with {axes} axes of bytes; is it a file of another data set?")
    shape = np.frombuffer(content[4:head], ">u4").tolist()
    if len(content) != head + int(np.prod(shape)):
        raise InputError(f"{file}: has {len(content) - head} values, but declares {shape}; download it again")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


SPECS = (
    Spec(
        name="mnist",
        read=read,
        title="MNIST",
        source="https://yann.lecun.org/exdb/mnist/",
        layout=Layout(("mnist", "MNIST/raw", "mnist/MNIST/raw")),
        folder="mnist",
        cameras=False,
        published=published(train=(10, 60000), query=(10, 5001), gallery=(10, 4999)),
        remark="classes",
    ),
)
