"""The data sets by name: one file each, and CSV files or folders of classes for all others.

A new data set is one file with ``load(root) -> DataSet`` and one line in :data:`LOADERS`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lreid.data.datasets import (
    csv_dataset,
    cuhk01,
    cuhk02,
    cuhk03,
    cuhk_sysu,
    grid,
    ilids,
    image_folder,
    lpw,
    market1501,
    msmt17,
    prid2011,
    sensereid,
    vehicleid,
    veri776,
    veri_wild,
    viper,
)
from lreid.data.datasets.layout import CameraPolicy
from lreid.data.records import DataSet
from lreid.data.synthetic import load_synthetic
from lreid.errors import InputError

LOADERS: dict[str, Callable[..., DataSet]] = {
    "market1501": market1501.load,
    "msmt17_v1": partial(msmt17.load, version="v1"),
    "msmt17_v2": partial(msmt17.load, version="v2"),
    "msmt17_v1+val": partial(msmt17.load, version="v1", with_val=True),
    "msmt17_v2+val": partial(msmt17.load, version="v2", with_val=True),
    "cuhk03_detected": partial(cuhk03.load, boxes="detected"),
    "cuhk03_labeled": partial(cuhk03.load, boxes="labeled"),
    "cuhk03_classic_detected": partial(cuhk03.load_classic, boxes="detected"),
    "cuhk03_classic_labeled": partial(cuhk03.load_classic, boxes="labeled"),
    "cuhk03_classic_detected_single_shot": partial(cuhk03.load_classic, boxes="detected", single_shot=True),
    "cuhk03_classic_labeled_single_shot": partial(cuhk03.load_classic, boxes="labeled", single_shot=True),
    "cuhk_sysu": cuhk_sysu.load,
    "cuhk_sysu_sub": partial(cuhk_sysu.load, min_images=4),
    "lpw": lpw.load,
    "lpw_s2": lpw.load_s2,
    "viper": viper.load,
    "prid2011": prid2011.load,
    "grid": grid.load,
    "ilids": ilids.load,
    "cuhk01": cuhk01.load,
    "cuhk02": cuhk02.load,
    "sensereid": sensereid.load,
    "veri776": veri776.load,
    "veri776_tracks": partial(veri776.load, tracks=True),
    "vehicleid_small": partial(vehicleid.load, size="small"),
    "vehicleid_medium": partial(vehicleid.load, size="medium"),
    "vehicleid_large": partial(vehicleid.load, size="large"),
    "veri_wild_small": partial(veri_wild.load, size="small"),
    "veri_wild_medium": partial(veri_wild.load, size="medium"),
    "veri_wild_large": partial(veri_wild.load, size="large"),
}

# Data sets whose figures are averaged over so many splits; their loaders take ``split`` and ``seed``.
SPLITS = {
    "viper": 20,
    "cuhk01": 20,
    "prid2011": 10,
    "grid": 10,
    "ilids": 10,
    "vehicleid_small": 10,
    "vehicleid_medium": 10,
    "vehicleid_large": 10,
    "cuhk03_classic_detected": 20,
    "cuhk03_classic_labeled": 20,
    "cuhk03_classic_detected_single_shot": 20,
    "cuhk03_classic_labeled_single_shot": 20,
}

# Data sets that tell no camera; their loaders take ``cameras``.
WITHOUT_CAMERAS = ("cuhk_sysu", "cuhk_sysu_sub", "vehicleid_small", "vehicleid_medium", "vehicleid_large")

WITHOUT_DUKE = "lreid-order1-noduke, lreid-order2-noduke and lpw-order1"  # files of configs/benchmarks


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
        name: a key of :data:`LOADERS`; ``csv:PATH`` for all domains of a CSV file, ``csv:PATH#DOMAIN`` for
            one of them; ``folder:PATH`` for a folder of classes (relative paths are looked for in the current
            folder, then in ``root``); ``synthetic:DOMAIN`` for a drawn one.
        root: folder that holds the data sets.
        synthetic: keyword arguments of :func:`lreid.data.synthetic.load_synthetic`, for drawn data sets.
        split: which split of a data set in :data:`SPLITS`; others have only one.
        split_seed: decides the random splits.
        cameras: of data sets that tell none, see :func:`lreid.data.datasets.layout.cameras_of_test`.

    Returns:
        One data set, or one for every domain of a CSV file.

    Raises:
        InputError: the name is unknown, or its loader finds something wrong.
    """
    root = Path(root)
    kind, colon, rest = name.partition(":")
    if kind == "csv" and colon:
        return _load_csv(rest, root)
    if kind == "folder" and colon:
        return [image_folder.load(_existing(rest, root, "folder"), cameras=cameras)]
    if kind == "synthetic" and colon:
        return [load_synthetic(rest, **synthetic)]
    if name in LOADERS:
        options: dict[str, Any] = {"split": split, "seed": split_seed} if name in SPLITS else {}
        if name in WITHOUT_CAMERAS:
            options["cameras"] = cameras
        return [LOADERS[name](root, **options)]
    if name.lower().startswith("duke"):
        raise InputError(
            f"{name}: DukeMTMC was withdrawn by its authors for reasons of privacy and is not supported; "
            f"orders without it are {WITHOUT_DUKE}"
        )
    known = [*LOADERS, "csv:PATH", "folder:PATH", "synthetic:DOMAIN"]
    nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)[0]
    raise InputError(f"{name}: unknown data set; the nearest known is {nearest} (all: {', '.join(known)})")


def _load_csv(name: str, root: Path) -> list[DataSet]:
    """``PATH`` or ``PATH#DOMAIN``. A path may hold a # too: the longest that is there counts."""
    parts = name.split("#")
    for end in range(len(parts), 0, -1):
        path, domain = "#".join(parts[:end]), "#".join(parts[end:])
        if _places(path, root):
            break
    file = _existing(path, root, "CSV file")
    data_sets = csv_dataset.load(file)
    if not domain:
        return data_sets
    names = [data_set.name for data_set in data_sets]
    if domain not in names:
        nearest = difflib.get_close_matches(domain, names, n=1, cutoff=0.0)[0]
        raise InputError(f"{file}: no domain {domain}; the nearest is {nearest} (all: {', '.join(names)})")
    return [data_sets[names.index(domain)]]


def _existing(path: str, root: Path, kind: str) -> Path:
    """The path as it stands or below ``root``, the first that exists."""
    if places := _places(path, root):
        return places[0]
    raise InputError(f"{path}: no such {kind}, neither here nor in {root}; check the path")


def _places(path: str, root: Path) -> list[Path]:
    return [place for place in (Path(path), root / path) if os.path.exists(place)]  # impossible ones are not
