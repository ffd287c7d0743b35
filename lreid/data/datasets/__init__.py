"""Find and load data sets by name, and image paths that are not files.

A data set is described by a file of this package or by a script. Every file in this folder defines ``SPECS``: one
:class:`lreid.data.spec.Spec` per data set name. Other packages add their data sets by :func:`register_package`. Names
and image paths of the form ``SCHEME:…``, such as ``csv:PATH``, are read by the :class:`Scheme` of a module of its own.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from lreid.data.records import CameraPolicy, DataSet
from lreid.errors import InputError, nearest_name
from lreid.utils.extras import registrar

if TYPE_CHECKING:
    from lreid.data.spec import Spec

DEV = "dev:"  # beginning of the names of development splits, see lreid.data.dev
WITHOUT_DUKE = "lreid-order1-noduke, lreid-order2-noduke and lpw-order1"  # files of configs/benchmarks

_schemes: dict[str, str] = {}
EXAMPLES: list[str] = []  # one name per scheme, for messages


def register_scheme(example: str, module: str) -> None:
    """Add a scheme, for this process.

    Args:
        example: a name with the scheme, such as ``folder:PATH``.
        module: full name of the module that defines the scheme as ``SCHEME``. It is imported when a name or path with
            the scheme is first used.
    """
    _schemes[example.partition(":")[0]] = module
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
        dev_share: share of the training identities that ``dev:NAME`` holds out, see :mod:`lreid.data.dev`.
        pattern: pattern for paths in folders of custom images, see :class:`lreid.data.listing.Pattern`; without one,
            lreid infers identities and cameras.
        synthetic: keyword arguments of :func:`lreid.data.synthetic.load_synthetic`.
    """

    root: str | Path = "datasets"
    cameras: CameraPolicy = "apart"
    split_seed: int = 0
    dev_share: float = 0.2
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
    if not colon or start not in _schemes:
        return None
    scheme: Scheme = importlib.import_module(_schemes[start]).SCHEME
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


_packages = [__name__]
_registered: dict[str, Spec] = {}


def register_package(name: str) -> None:
    """Add the data sets of a package, each of whose modules defines ``SPECS``, for this process."""
    if name not in _packages:
        _packages.append(name)


def register_dataset(spec: Spec) -> None:
    """Register a data set that is defined outside this package, for this process.

    Registering the same name again replaces the data set, so a notebook cell may run twice.

    Raises:
        ArgumentError: a data set of this package has the same name.
    """
    registrar(_registered, spec.name, "a data set", own=spec.name in specs().keys() - _registered.keys())(spec)


@cache
def _modules(package: str) -> tuple[ModuleType, ...]:
    """Import the modules of a package, in alphabetical order."""
    paths = importlib.import_module(package).__path__
    return tuple(importlib.import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(paths))


def files() -> Iterator[ModuleType]:
    """Yield the modules that define data sets, in alphabetical order within each package."""
    return (module for package in _packages for module in _modules(package))


def specs() -> dict[str, Spec]:
    """Map the names of all data sets to their specifications."""
    return {spec.name: spec for module in files() for spec in module.SPECS} | _registered


def find_dataset(name: str) -> Spec | None:
    """Return the specification of a data set; None if the name is unknown or has a scheme such as ``synthetic:``."""
    return None if ":" in name else specs().get(name)  # a scheme needs no import of the data sets


def spec_of(name: str) -> Spec:
    """Return the specification of a data set.

    Raises:
        InputError: no data set has this name; the message gives the most similar name.
    """
    if spec := find_dataset(name):
        return spec
    if name.lower().startswith("duke"):
        raise InputError(
            f"{name}: DukeMTMC was withdrawn by its authors for reasons of privacy; use a task order without it "
            f"({WITHOUT_DUKE}), or dukemtmc_reid if you still have its re-ID part"
        )
    if os.path.exists(name):
        raise InputError(f"{name}: names no data set; write own:{name}, or csv:{name} for a list with splits")
    if os.sep in name:
        raise InputError(f"{name}: is neither a folder, a file nor the name of a data set; check the path")
    names = [*specs(), *EXAMPLES]
    near = {each.partition(":")[0]: each for each in names}
    nearest = near[nearest_name(name.lower(), near)]
    raise InputError(f"{name}: unknown data set; the nearest name is {nearest} (all: {', '.join(names)})")


def split_count(name: str) -> int:
    """Return the number of splits over which the figures of a data set are averaged."""
    spec = find_dataset(name)
    return spec.splits if spec else 1


def load_datasets(name: str, sources: Sources = Sources(), *, split: int = 0) -> list[DataSet]:
    """Load the data sets that a name denotes.

    Args:
        name: a name in :func:`specs`, or a name with one of the schemes below. ``csv:PATH`` means all domains of a CSV
            file, and ``csv:PATH#DOMAIN`` means a single domain. ``own:PATH`` is a folder of
            identities, or a CSV file without splits (:mod:`lreid.data.custom`). ``synthetic:DOMAIN`` means synthetic
            images, and ``rendered:DOMAIN`` the rendered people that lreid includes. ``dev:NAME`` is a split of the
            training images of NAME (:mod:`lreid.data.dev`). The package of classification adds
            ``folder:PATH``, a folder of classes, and ``rotated:DEGREES:NAME``, a data set of image files that are
            rotated by an angle. Relative paths are relative to the current folder or to ``sources.root``.
        sources: settings for reading data sets, such as the folder of all data sets.
        split: number of the split, counted from 0, for a data set with several splits.

    Returns:
        A list with one data set; for a CSV file, one data set per domain.

    Raises:
        InputError: the name is unknown, or the files of the data set are faulty.
    """
    if scheme := scheme_of(name):
        return scheme.load(name.partition(":")[2], sources, split)
    return [spec_of(name).load(sources.root, split=split, seed=sources.split_seed, cameras=sources.cameras)]
