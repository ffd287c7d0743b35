"""The data sets by name: one file each, and CSV files for all others.

A new data set is one file with ``load(root) -> DataSet`` and one line in :data:`LOADERS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lreid.data.datasets import csv_dataset, market1501, msmt17, veri776
from lreid.data.records import DataSet
from lreid.data.synthetic import load_synthetic
from lreid.errors import InputError

LOADERS: dict[str, Callable[[Path], DataSet]] = {
    "market1501": market1501.load,
    "msmt17_v1": partial(msmt17.load, version="v1"),
    "msmt17_v2": partial(msmt17.load, version="v2"),
    "msmt17_v1+val": partial(msmt17.load, version="v1", with_val=True),
    "msmt17_v2+val": partial(msmt17.load, version="v2", with_val=True),
    "veri776": veri776.load,
}


def load_datasets(name: str, root: str | Path, synthetic: Mapping[str, Any]) -> list[DataSet]:
    """Loads what one name stands for.

    Args:
        name: a key of :data:`LOADERS`; ``csv:PATH`` for all domains of a CSV file, ``csv:PATH#DOMAIN`` for
            one of them (a relative path is looked for in the current folder, then in ``root``);
            ``synthetic:DOMAIN`` for a drawn one.
        root: folder that holds the data sets.
        synthetic: keyword arguments of :func:`lreid.data.synthetic.load_synthetic`, for drawn data sets.

    Returns:
        One data set, or one for every domain of a CSV file.

    Raises:
        InputError: the name is unknown, or its loader finds something wrong.
    """
    root = Path(root)
    kind, colon, rest = name.partition(":")
    if kind == "csv" and colon:
        path, _, domain = rest.partition("#")
        return _load_csv(path, domain, root)
    if kind == "synthetic" and colon:
        return [load_synthetic(rest, **synthetic)]
    if name in LOADERS:
        return [LOADERS[name](root)]
    if name.lower().startswith("duke"):
        raise InputError(
            f"{name}: DukeMTMC was withdrawn by its authors for reasons of privacy and is not supported; "
            "leave it out of the sequence"
        )
    known = [*LOADERS, "csv:PATH", "synthetic:DOMAIN"]
    nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)[0]
    raise InputError(f"{name}: unknown data set; the nearest known is {nearest} (all: {', '.join(known)})")


def _load_csv(path: str, domain: str, root: Path) -> list[DataSet]:
    file = Path(path)
    if not file.exists():
        file = root / path
    if not file.exists():
        raise InputError(f"{path}: no such CSV file, neither here nor in {root}; check the path")
    data_sets = csv_dataset.load(file)
    if not domain:
        return data_sets
    names = [data_set.name for data_set in data_sets]
    if domain not in names:
        nearest = difflib.get_close_matches(domain, names, n=1, cutoff=0.0)[0]
        raise InputError(f"{file}: no domain {domain}; the nearest is {nearest} (all: {', '.join(names)})")
    return [data_sets[names.index(domain)]]
