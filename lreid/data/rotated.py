"""Rotated images, for domain-incremental streams such as R-MNIST: the address of one names its file and the angle."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from lreid.data.records import DataSet
from lreid.errors import InputError

PREFIX = "rotated:"


def is_rotated(path: str) -> bool:
    """Whether a record's path is the address of a rotated image, ``rotated:DEGREES:FILE``."""
    return path.startswith(PREFIX)


def unrotated(path: str) -> str:
    """The file that an image is made of; of every other path that path."""
    return path.split(":", 2)[2] if is_rotated(path) else path


def rotate(image: np.ndarray, address: str) -> np.ndarray:
    """An image (H, W, 3) uint8 turned anticlockwise by the degrees of its address, bilinear; the corners are black."""
    degrees = float(address.split(":", 2)[1])
    return np.array(Image.fromarray(image).rotate(degrees, Image.Resampling.BILINEAR))


def rotated(data_set: DataSet, degrees: str) -> DataSet:
    """A data set with all images turned by an angle.

    Args:
        data_set: whose images are files.
        degrees: the angle, as text.

    Raises:
        InputError: the angle is no finite number.
    """
    try:
        angle = float(degrees)
    except ValueError:
        angle = math.nan
    if not math.isfinite(angle):
        raise InputError(f"{PREFIX}{degrees}: must be a number of degrees and a data set, as in rotated:45.0:mnist")
    splits: dict[str, Any] = {
        split: tuple(record._replace(path=f"{PREFIX}{angle}:{record.path}") for record in getattr(data_set, split))
        for split in ("train", "query", "gallery", "held_out")
    }
    return replace(data_set, name=f"{data_set.name} {angle:g}°", **splits)
