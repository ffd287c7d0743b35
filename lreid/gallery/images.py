"""Extract features and labels of images, so that a gallery can be built and searched with images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lreid.errors import ArgumentError, InputError

if TYPE_CHECKING:
    from lreid.models.embedder import Embedder

Model: TypeAlias = "str | Embedder"  # the fingerprint of a network for features; a network or its name for images


class Named(NamedTuple):
    """Images or features with paths, identities and cameras; ``ids`` or ``cams`` is None if all of them are unknown."""

    images: Any
    paths: Any
    ids: Any
    cams: Any


def named(images: Any, paths: Any, ids: Any, cams: Any) -> Named:
    """Add absolute paths and labels to images. Missing labels are read from the paths, if the images are in a folder.

    Args:
        images: features (n, D), or images in any form of :meth:`lreid.models.Embedder.extract`.
        paths, ids, cams: see :meth:`lreid.Gallery.build`.

    Raises:
        ArgumentError: the images are features or are in memory, and ``paths`` is missing.
        InputError: the folder contains no images, or only some of its files are named as in Market-1501.
    """
    if paths is not None:
        return Named(images, paths, ids, cams)
    if are_features(images):
        raise ArgumentError("paths", "is missing; name the image of each row of features")
    from lreid.data.listing import list_folder
    from lreid.models.inputs import sequence_of

    if ids is cams is None and isinstance(images, (str, os.PathLike)) and os.path.isdir(images):
        listed = list_folder(Path(images))
        files = [image.path for image in listed]
        ids, cams = [image.identity for image in listed], [image.camera for image in listed]
    else:
        sequence = sequence_of(images)
        files = list(sequence) if isinstance(sequence, Iterator) else sequence
    if not all(isinstance(file, (str, os.PathLike)) for file in files):
        raise ArgumentError("paths", "is missing; give each image in memory a name: paths=['a.jpg', 'b.jpg']")
    return Named(files, [absolute(os.fspath(file)) for file in files], ids, cams)


def absolute(path: str) -> str:
    """Return the name under which a gallery stores an image, its absolute path."""
    from lreid.data.schemes import is_address

    return path if is_address(path) else os.path.abspath(path)


def are_features(images: Any) -> bool:
    """Whether the argument consists of features, which are rows of floats, instead of images."""
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (list, tuple, float)):
        return True
    return getattr(images, "ndim", 0) == 2 and "float" in str(images.dtype)


def model_of(images: Any, model: Model | None, extras: dict[str, np.ndarray]) -> tuple[str, Embedder | None]:
    """Return the fingerprint and the network of a model. The network is None if ``model`` is only a fingerprint.

    Args:
        images: see :func:`named`.
        model: model, or None for the network that the gallery records.
        extras: extras of the gallery; empty for a new gallery.

    Raises:
        ArgumentError: no model is given, and the gallery does not record one.
        InputError: :func:`lreid.load_model` raises an error, or the gallery's features are standardised per camera.
    """
    if are_features(images) and isinstance(model, str):
        return model, None
    if model is None and "checkpoint" in extras and not are_features(images):
        model = str(extras["checkpoint"][0])
    if model is None:
        raise ArgumentError("model", "is missing; pass lreid.load_model(…) for images, its fingerprint for features")
    from torch import nn

    from lreid.loading import load_model
    from lreid.models.fingerprint import fingerprint

    network = model if isinstance(model, nn.Module) else load_model(model)
    if not are_features(images) and any(name.startswith("norm/") for name in extras):
        raise InputError("the gallery's features are standardised per camera; use lreid search query")
    return fingerprint(network), network


def features_of(images: Any, network: Embedder | None, extras: dict[str, np.ndarray]) -> Any:
    """Extract features (n, D) of images with the network of :func:`model_of`; return features unchanged."""
    if network is None or are_features(images):
        return images
    return network.extract(images, flip=bool(extras.get("flip", [False])[0]))


def origin(network: Embedder) -> dict[str, np.ndarray]:
    """Describe the source of a network; a gallery stores it so that later commands can load the network."""
    return {"checkpoint": np.array([network.source]), "flip": np.array([False])} if network.source else {}
