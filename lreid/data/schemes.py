"""Read data set names and image paths of the form ``SCHEME:…``; each scheme has its own module."""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.records import CameraPolicy, DataSet
from lreid.errors import InputError

_modules: dict[str, str] = {}
EXAMPLES: list[str] = []  # one name per scheme, for messages


def register_scheme(example: str, module: str) -> None:
    """Add a scheme, for this process.

    Args:
        example: a name with the scheme, such as ``folder:PATH``.
        module: full name of the module that defines the scheme as ``SCHEME``. It is imported when a name or path with
            the scheme is first used.
    """
    _modules[example.partition(":")[0]] = module
    if example not in EXAMPLES:
        EXAMPLES.append(example)


@dataclass(frozen=True)
class Sources:
    """Settings for reading data sets.

    Attributes:
        root: folder of the data sets; image paths in CSV files may be relative to this folder.
        cameras: rule for the camera numbers of data sets without cameras, see
            :func:`lreid.data.records.cameras_of_test`.
        split_seed: seed of random splits.
        pattern: pattern for paths in folders of custom images, see :class:`lreid.data.listing.Pattern`; without one,
            lreid infers identities and cameras.
        synthetic: keyword arguments of :func:`lreid.data.synthetic.load_synthetic`.
    """

    root: str | Path = "datasets"
    cameras: CameraPolicy = "apart"
    split_seed: int = 0
    pattern: str = ""
    synthetic: Mapping[str, Any] = field(default_factory=dict)

    def existing(self, path: str, kind: str) -> Path:
        """Return the path if it exists, otherwise the same path in ``root``; ``kind`` is a noun for it in errors.

        Raises:
            InputError: the path exists neither in the working directory nor in ``root``.
        """
        for file in (Path(path), self.root / Path(path)):
            if os.path.exists(file):  # exists() is False for impossible paths
                return file
        raise InputError(f"{path}: no such {kind}, neither here nor in {self.root}; check the path")


@dataclass(frozen=True)
class Scheme:
    """The functions that read the data set names and image paths of one scheme.

    Attributes:
        load: function that loads the data sets of a name. Arguments of ``load`` are the rest of the name after
            ``SCHEME:``, the sources and the number of the split.
        read: function that returns the image (H, W, 3) uint8 RGB at a path, or None if images are plain files.
        file: function that returns the file from which the image at a path is computed, or None if there is none.
        content: function that returns all bytes that determine the image at a path, except those of ``file``.
    """

    load: Callable[[str, Sources, int], list[DataSet]]
    read: Callable[[str], np.ndarray] | None = None
    file: Callable[[str], str | None] = lambda path: None
    content: Callable[[str], bytes] = lambda path: b""


def scheme_of(name: str) -> Scheme | None:
    """Return the scheme of a data set name or an image path, or None if it has no scheme."""
    start, colon, _ = name.partition(":")
    if not colon or start not in _modules:
        return None
    scheme: Scheme = importlib.import_module(_modules[start]).SCHEME
    return scheme


def image_scheme(path: str) -> Scheme | None:
    """Return the scheme that reads the image at a path, or None if the path is a plain file."""
    scheme = scheme_of(path)
    return scheme if scheme is not None and scheme.read is not None else None


def file_of(path: str) -> str | None:
    """Return the file from which the image at a path is computed, or None if there is none, as for synthetic images."""
    scheme = image_scheme(path)
    return path if scheme is None else scheme.file(path)


def is_address(path: str) -> bool:
    """Whether an image path or a data set name stands for images without files of their own (synthetic or rendered)."""
    return file_of(path) is None
