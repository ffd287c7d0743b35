"""Features and names of images, for galleries that are built and searched with images instead of features."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lreid.errors import ArgumentError, InputError

if TYPE_CHECKING:
    from lreid.models.embedder import Embedder

Model: TypeAlias = "str | Embedder"  # for features a fingerprint; for images a network or its name


class Named(NamedTuple):
    """Images or features, with the path, identity and camera of each; None if unknown."""

    images: Any
    paths: Any
    ids: Any
    cams: Any


def named(images: Any, paths: Any, ids: Any, cams: Any) -> Named:
    """Images with their absolute paths and labels; labels that are not given are read from the paths in a folder.

    Args:
        images: features (n, D), or images as in :meth:`lreid.models.Embedder.extract`.
        paths, ids, cams: as in :meth:`lreid.Gallery.build`.

    Raises:
        ArgumentError: features, or images in memory, have no paths.
        InputError: a folder without images, or with contradictory names.
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
        raise ArgumentError("paths", "is missing; images in memory have no names, so give each one")
    return Named(files, [absolute(os.fspath(file)) for file in files], ids, cams)


def absolute(path: str) -> str:
    """The name under which a gallery stores an image."""
    from lreid.data.schemes import is_address

    return path if is_address(path) else os.path.abspath(path)


def are_features(images: Any) -> bool:
    """Whether the images are features: rows of floats."""
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (list, tuple, float)):
        return True
    return getattr(images, "ndim", 0) == 2 and "float" in str(images.dtype)


def model_of(images: Any, model: Model | None, extras: dict[str, np.ndarray]) -> tuple[str, Embedder | None]:
    """The fingerprint of the model of images or features, and its network if it is given or needed.

    Args:
        images: as in :func:`named`.
        model: None means the network that the gallery records.
        extras: extras of the gallery, empty for a new one.

    Raises:
        ArgumentError: no model is given, and the gallery records none.
        InputError: as :func:`lreid.load_model`, or the gallery's features are standardised by camera.
    """
    if are_features(images) and isinstance(model, str):
        return model, None
    if model is None and "checkpoint" in extras and not are_features(images):
        model = str(extras["checkpoint"][0])
    if model is None:
        raise ArgumentError("model", "is missing; give lreid.load_model(…) with images, its fingerprint with features")
    from lreid.loading import load_model
    from lreid.models.fingerprint import fingerprint

    network = load_model(model) if isinstance(model, str) else model
    if not are_features(images) and any(name.startswith("norm/") for name in extras):
        raise InputError("the gallery's features are standardised by camera; use lreid search query")
    return fingerprint(network), network


def features_of(images: Any, network: Embedder | None, extras: dict[str, np.ndarray]) -> Any:
    """Features (n, D) of images, by the network of :func:`model_of`; features are returned unchanged."""
    if network is None or are_features(images):
        return images
    return network.extract(images, flip=bool(extras.get("flip", [False])[0]))


def origin(network: Embedder) -> dict[str, np.ndarray]:
    """The facts about the network that a gallery stores, for the commands and for later searches with images."""
    return {"checkpoint": np.array([network.source]), "flip": np.array([False])} if network.source else {}
