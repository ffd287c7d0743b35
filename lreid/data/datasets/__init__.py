"""The data sets by name: a file each, found by the file, and those that a script of one's own registers.

Every file of this folder holds ``SPECS``: a :class:`lreid.data.spec.Spec` for each name. CSV files, folders of classes
and synthetic data sets have names of another kind and need no file.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from lreid.data import csv_dataset, image_folder, own
from lreid.data.layout import CameraPolicy
from lreid.data.records import DataSet
from lreid.data.rendered_set import load_rendered
from lreid.data.rotated import rotated
from lreid.data.spec import Spec
from lreid.data.synthetic import load_synthetic
from lreid.errors import ArgumentError, InputError

WITHOUT_DUKE = "lreid-order1-noduke, lreid-order2-noduke and lpw-order1"  # files of configs/benchmarks

_registered: dict[str, Spec] = {}


def register_dataset(spec: Spec) -> None:
    """Makes a data set outside this package known by its name, as long as the process lives.

    In a notebook a cell that is run twice puts the new one in the place of the old one.

    Raises:
        ArgumentError: a data set of this package has that name.
    """
    if any(known.name == spec.name for module in files() for known in module.SPECS):
        raise ArgumentError("spec", f"is named {spec.name}, which comes with lreid; choose another name")
    _registered[spec.name] = spec


@cache
def files() -> tuple[ModuleType, ...]:
    """The modules of this folder, in alphabetical order."""
    return tuple(importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))


def specs() -> dict[str, Spec]:
    """All data sets by name."""
    return {spec.name: spec for module in files() for spec in module.SPECS} | _registered


def spec_of(name: str) -> Spec:
    """The data set of a name.

    Raises:
        InputError: there is none; the nearest known name is told.
    """
    if found := specs().get(name):
        return found
    if name.lower().startswith("duke"):
        raise InputError(
            f"{name}: DukeMTMC was withdrawn by its authors for reasons of privacy; orders without it are "
            f"{WITHOUT_DUKE}, and dukemtmc_reid is the name of its re-ID part for those who hold it"
        )
    known = [
        *specs(),
        "csv:PATH",
        "folder:PATH",
        "own:PATH",
        "synthetic:DOMAIN",
        "rendered:DOMAIN",
        "rotated:DEGREES:NAME",
    ]
    near = {each.partition(":")[0]: each for each in known}
    nearest = near[difflib.get_close_matches(name.lower(), near, n=1, cutoff=0.0)[0]]
    raise InputError(f"{name}: unknown data set; the nearest known is {nearest} (all: {', '.join(known)})")


def splits_of(name: str) -> int:
    """Over how many splits the figures of a data set of any kind are averaged."""
    return specs()[name].splits if name in specs() else 1


def load_datasets(
    name: str,
    root: str | Path,
    synthetic: Mapping[str, Any],
    *,
    split: int = 0,
    split_seed: int = 0,
    cameras: CameraPolicy = "apart",
) -> list[DataSet]:
    """Loads what one name stands for.

    Args:
        name: of a data set, see :func:`specs`; ``csv:PATH`` for all domains of a CSV file, ``csv:PATH#DOMAIN`` for
            one of them; ``folder:PATH`` for a folder of classes; ``own:PATH`` for a folder of identities, or a CSV file
            without splits, see :mod:`lreid.data.own` (relative paths are looked for in the current folder, then in
            ``root``); ``synthetic:DOMAIN`` for a synthetic one; ``rendered:DOMAIN`` for rendered people that come with
            lreid; ``rotated:DEGREES:NAME`` for another one of these, whose images are files, turned by an angle.
        root: folder that holds the data sets.
        synthetic: keyword arguments of :func:`lreid.data.synthetic.load_synthetic` for those.
        split: which one, of a data set that has several.
        split_seed: decides the random splits.
        cameras: of data sets that tell none, see :func:`lreid.data.layout.cameras_of_test`.

    Returns:
        One data set, or one for every domain of a CSV file.

    Raises:
        InputError: the name is unknown, or something is wrong with its files.
    """
    root = Path(root)
    kind, colon, rest = name.partition(":")
    if kind == "csv" and colon:
        return _load_csv(rest, root, cameras)
    if kind == "folder" and colon:
        return [image_folder.load(_existing(rest, root, "folder"), cameras=cameras)]
    if kind == "own" and colon:
        return own.load(_existing(rest, root, "folder or CSV file"), cameras=cameras)
    if kind == "synthetic" and colon:
        return [load_synthetic(rest, **synthetic)]
    if kind == "rendered" and colon:
        return [load_rendered(rest)]
    if kind == "rotated" and colon:
        degrees, _, of = rest.partition(":")
        options: dict[str, Any] = {"split": split, "split_seed": split_seed, "cameras": cameras}
        return [rotated(data_set, degrees) for data_set in load_datasets(of, root, synthetic, **options)]
    return [spec_of(name).load(root, split=split, seed=split_seed, cameras=cameras)]


def _load_csv(name: str, root: Path, cameras: CameraPolicy) -> list[DataSet]:
    """``PATH`` or ``PATH#DOMAIN``. A path may hold a # too: the longest that is there counts."""
    parts = name.split("#")
    for end in range(len(parts), 0, -1):
        path, domain = "#".join(parts[:end]), "#".join(parts[end:])
        if _found(path, root):
            break
    file = _existing(path, root, "CSV file")
    data_sets = csv_dataset.load(file, cameras=cameras)
    if not domain:
        return data_sets
    names = [data_set.name for data_set in data_sets]
    if domain not in names:
        nearest = difflib.get_close_matches(domain, names, n=1, cutoff=0.0)[0]
        raise InputError(f"{file}: no domain {domain}; the nearest is {nearest} (all: {', '.join(names)})")
    return [data_sets[names.index(domain)]]


def _existing(path: str, root: Path, kind: str) -> Path:
    """The path as it stands or below ``root``, the first that exists."""
    if found := _found(path, root):
        return found[0]
    raise InputError(f"{path}: no such {kind}, neither here nor in {root}; check the path")


def _found(path: str, root: Path) -> list[Path]:
    return [file for file in (Path(path), root / path) if os.path.exists(file)]  # impossible ones are not
