"""Names of data sets and paths of images of the form ``SCHEME:…``; for each scheme there is a module that reads them.

The module of a scheme is imported when the first name or path of the scheme is read.
"""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.records import CameraPolicy, DataSet
from lreid.errors import InputError

MODULES = {  # each module defines its Scheme as SCHEME
    "csv": "lreid.data.csv_dataset",
    "folder": "lreid.classification.image_folder",
    "own": "lreid.data.custom",
    "synthetic": "lreid.data.synthetic",
    "rendered": "lreid.data.rendered_set",
    "rotated": "lreid.classification.rotated",
    "torchreid": "lreid.data.torchreid_set",
}
EXAMPLES = ("csv:PATH", "folder:PATH", "own:PATH", "synthetic:DOMAIN", "rendered:DOMAIN", "rotated:DEGREES:NAME")
EXAMPLES += ("torchreid:NAME",)


@dataclass(frozen=True)
class Sources:
    """Sources of data sets, and settings for reading them.

    Attributes:
        root: folder of the data sets; image paths in CSV files may be relative to it.
        cameras: cameras of queries and galleries for data sets without cameras, see
            :func:`lreid.data.layout.cameras_of_test`.
        split_seed: seed of random splits.
        pattern: pattern of the paths in folders of custom images, see :class:`lreid.data.pattern.Pattern`; if empty,
            lreid infers identities and cameras.
        synthetic: keyword arguments of :func:`lreid.data.synthetic.load_synthetic`.
    """

    root: str | Path = "datasets"
    cameras: CameraPolicy = "apart"
    split_seed: int = 0
    pattern: str = ""
    synthetic: Mapping[str, Any] = field(default_factory=dict)

    def existing(self, path: str, kind: str) -> Path:
        """The path itself if it exists, else the same path in ``root``; ``kind`` says in messages what it should be.

        Raises:
            InputError: neither exists.
        """
        for file in (Path(path), self.root / Path(path)):
            if os.path.exists(file):  # exists() is False for impossible paths
                return file
        raise InputError(f"{path}: no such {kind}, neither here nor in {self.root}; check the path")


@dataclass(frozen=True)
class Scheme:
    """Readers of the names and the image paths of a scheme.

    Attributes:
        load: function that returns the data sets of a name; its arguments are the part of the name after ``SCHEME:``,
            the sources and the number of the split.
        read: function that returns the image (H, W, 3) uint8 RGB at a path; None if images are plain files.
        file: function that returns the file from which the image at a path is made; None if there is none.
        content: function that returns everything besides that file that determines the image at a path.
    """

    load: Callable[[str, Sources, int], list[DataSet]]
    read: Callable[[str], np.ndarray] | None = None
    file: Callable[[str], str | None] = lambda path: None
    content: Callable[[str], bytes] = lambda path: b""


def scheme_of(name: str) -> Scheme | None:
    """The scheme of a data set's name or an image's path; None if there is no scheme."""
    start, colon, _ = name.partition(":")
    if not colon or start not in MODULES:
        return None
    scheme: Scheme = importlib.import_module(MODULES[start]).SCHEME
    return scheme


def image_scheme(path: str) -> Scheme | None:
    """The scheme that reads the image at a path; None for a plain file."""
    scheme = scheme_of(path)
    return scheme if scheme is not None and scheme.read is not None else None


def file_of(path: str) -> str | None:
    """The file from which the image at a path is made: the path itself for a plain file, None if there is no file."""
    scheme = image_scheme(path)
    return path if scheme is None else scheme.file(path)


def is_address(path: str) -> bool:
    """Whether a record's path or the name of a data set denotes images without a file: synthetic or rendered ones."""
    return file_of(path) is None
