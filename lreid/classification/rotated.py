"""Rotated images for domain-incremental streams such as R-MNIST. The name of an image contains its angle and its file.

    rotated:DEGREES:FILE

The data set name ``rotated:DEGREES:NAME`` means the data set NAME with all images rotated. The images of this data set
must be files.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from lreid.data.datasets import Scheme, Sources, file_of, load_datasets
from lreid.data.images import read_image
from lreid.data.records import DataSet
from lreid.errors import InputError


def read(path: str) -> np.ndarray:
    """Read an image (H, W, 3) uint8, rotated anticlockwise with bilinear interpolation and black corners."""
    _, degrees, file = path.split(":", 2)
    return np.array(Image.fromarray(read_image(file)).rotate(float(degrees), Image.Resampling.BILINEAR))


def load(name: str, sources: Sources, split: int) -> list[DataSet]:
    """Load the rotated data set ``DEGREES:NAME``.

    Raises:
        InputError: the angle is not a decimal number, or the data set cannot be loaded.
    """
    degrees, _, plain = name.partition(":")
    if not re.fullmatch(r"[+-]?\d+(\.\d*)?", degrees):
        raise InputError(f"rotated:{degrees}: must be a number of degrees and a data set, as in rotated:45.0:mnist")
    return [_rotated(data_set, float(degrees)) for data_set in load_datasets(plain, sources, split=split)]


def _rotated(data_set: DataSet, angle: float) -> DataSet:
    splits: dict[str, Any] = {
        split: tuple(record._replace(path=f"rotated:{angle}:{record.path}") for record in getattr(data_set, split))
        for split in ("train", "query", "gallery", "held_out")
    }
    return replace(data_set, name=f"{data_set.name} {angle:g}°", **splits)


SCHEME = Scheme(load, read, file=lambda path: file_of(path.split(":", 2)[2]))
