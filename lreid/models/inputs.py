"""Convert images of any supported form to a sequence of paths and arrays."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lreid.data.datasets import is_address
from lreid.data.images import SUFFIXES, fit_image, read_image, rgb_of
from lreid.errors import ArgumentError

OneImage: TypeAlias = str | os.PathLike[str] | Image.Image | np.ndarray | Tensor
AnyImages: TypeAlias = OneImage | Iterable[OneImage]

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # means and deviations of RGB values in [0, 1]
VIDEOS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".mpeg", ".webm", ".wmv")
IMAGES_AND_VIDEOS = SUFFIXES + VIDEOS
CALL = "pass 'folder', ['a.jpg', 'b.jpg'], images of PIL, or uint8 RGB arrays"


def sequence_of(images: Any) -> Sequence[Any] | np.ndarray | Tensor | Iterator[Any]:
    """Convert images of any supported form to a sequence, an array, a tensor or an iterator of images.

    Args:
        images: as in :meth:`lreid.models.Embedder.extract`.

    Returns:
        A container with one item per image, whose files are not read yet. Items are read and checked later by
        :func:`read_rgb`.

    Raises:
        ArgumentError: the argument has an unsupported type; the message shows a valid call.
        InputError: a folder has no images.
    """
    if isinstance(images, (str, os.PathLike)):
        return _files(os.fspath(images))
    if isinstance(images, Image.Image):
        return [images]
    if isinstance(images, (np.ndarray, Tensor)):
        return _several(images)
    if isinstance(images, (Sequence, Iterator)) and not isinstance(images, (bytes, bytearray)):
        return images
    if not isinstance(images, (bytes, bytearray, dict, type)) and hasattr(images, "__iter__"):
        return list(images)  # such as a column of a table or a set
    raise ArgumentError("images", f"is of the type {type(images).__name__}; {CALL}")


def _files(path: str) -> Sequence[str]:
    """List the image files of a path: a file, a folder, or a pattern such as ``people/*.jpg``."""
    if os.path.isdir(path):
        from lreid.data.listing import image_files  # only folders are listed

        return [str(file) for file in image_files(Path(path))]
    if os.path.exists(path) or is_address(path):
        return [path]
    if glob.has_magic(path):
        if files := sorted(each for each in glob.glob(path, recursive=True) if os.path.isfile(each)):
            return files
        raise ArgumentError("images", f"{path}: no file matches this pattern; {CALL}")
    return [path]  # reading it will report the error


def _several(images: np.ndarray | Tensor) -> np.ndarray | Tensor:
    """Make a batch of one image from an array that is a single image; return a batch unchanged."""
    kind = images.dtype
    if images.ndim == 0 or (isinstance(images, Tensor) and images.layout != torch.strided):
        raise unsupported(images)
    if isinstance(images, Tensor) and images.is_floating_point():
        return images[None] if images.ndim == 3 else images  # (1, 3, H, W)
    if kind in (np.uint8, torch.uint8):
        one = images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3))
        return images[None] if one else images  # (1, H, W) or (1, H, W, C)
    holds_paths = not isinstance(images, Tensor) and images.dtype.kind in "OSU"
    if images.ndim < 4 and not holds_paths:
        raise unsupported(images)
    return images


def read_rgb(image: Any, *, height: int, width: int) -> np.ndarray:
    """Read one image in RGB, resized to the input size of a network.

    Args:
        image: a path, a PIL image, or an array or tensor of uint8: (H, W, 3), or grey as (H, W) or (H, W, 1).

    Returns:
        (height, width, 3) uint8.

    Raises:
        InputError: the file cannot be read, or the image has an unsupported type or shape; floats in [0, 1], for
            example, would become black pixels.
    """
    if not isinstance(image, (str, os.PathLike)):
        return fit_image(_pixels_of(image), height=height, width=width)
    path = os.fspath(image)
    if not path:
        raise ArgumentError("images", f"hold an empty path; {CALL}")
    if "://" in path and not is_address(path):
        raise ArgumentError("images", f"{path}: is a web address; download the image and name the file")
    if path.lower().endswith(VIDEOS):
        raise ArgumentError("images", f"{path}: is a video; cut images out with lreid data from-tracks")
    return read_image(path, height=height, width=width)


def _pixels_of(image: Any) -> np.ndarray:
    """Convert an image in memory to RGB (H, W, 3) uint8."""
    if isinstance(image, Image.Image):
        return rgb_of(image)
    if not isinstance(image, (np.ndarray, Tensor)):
        raise ArgumentError("images", f"contain an item of the type {type(image).__name__}; {CALL}")
    array = image.cpu().numpy() if isinstance(image, Tensor) else image
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3))):
        raise unsupported(array)
    grey = array.ndim == 2 or array.shape[2] == 1
    return np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2) if grey else array


def batches_of(
    images: Sequence[Any] | np.ndarray | Tensor | Iterator[Any], step: int
) -> Iterator[tuple[int, Sequence[Any] | np.ndarray | Tensor]]:
    """Cut images into batches of ``step`` images, and yield each batch with the position of its first image."""
    if isinstance(images, Iterator):
        first = 0
        while batch := list(islice(images, step)):
            yield first, batch
            first += len(batch)
    else:
        for first in range(0, len(images), step):
            yield first, images[first : first + step]


def unsupported(came: np.ndarray | Tensor) -> ArgumentError:
    """Create the error for an array with an unsupported shape or type."""
    return ArgumentError(
        "images",
        f"hold one of shape {tuple(came.shape)} and type {came.dtype}; give paths, RGB values of uint8 from 0 to 255 "
        "in (H, W, 3) each, or a normalised float tensor (n, 3, H, W)",
    )


def require_pixels(images: Sequence[Any] | np.ndarray | Tensor, first: int) -> None:
    """Refuse images without pixels, or with NaN or infinite values, for which a network may raise no error.

    Args:
        images: at least one of the images that were passed to :meth:`lreid.models.Embedder.extract`.
        first: position of ``images[0]`` among all images.
    """
    if isinstance(images, (np.ndarray, Tensor)):
        empty = [0] if 0 in images.shape else []
    else:
        empty = [index for index, image in enumerate(images) if 0 in getattr(image, "shape", ())]
    if empty:
        raise ArgumentError("images", f"hold one without pixels at position {first + empty[0]}; leave it out")
    if isinstance(images, Tensor) and images.is_meta:
        raise ArgumentError("images", f"are on the device meta, which has no values; {CALL}")
    if isinstance(images, Tensor) and images.is_floating_point():
        broken = (~images.isfinite().flatten(1).all(1)).nonzero()
        if len(broken):
            raise ArgumentError(
                "images", f"hold NaN or infinite values at position {first + int(broken[0])}; leave that image out"
            )


def finite(features: np.ndarray, first: int) -> np.ndarray:
    """Return features (B, dim) if all values are finite; otherwise raise an error, because they cannot be compared.

    Args:
        first: position of the batch's first image among all images.
    """
    broken = np.flatnonzero(~np.isfinite(features).all(1))
    if len(broken):
        raise ArgumentError(
            "images", f"give NaN or infinite features at position {first + broken[0]}; check its values and the weights"
        )
    return features
