"""Data sets that torchreid reads: ``torchreid:market1501`` is torchreid's reader of ``market1501``.

Image data sets that a script registered by ``torchreid.data.register_image_dataset`` are known by their names, too.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

from lreid.data.records import DataSet, Record
from lreid.data.schemes import Scheme, Sources
from lreid.errors import InputError
from lreid.extras import Extra
from lreid.identities import JUNK

SPLITS = ("train", "query", "gallery")


def load(name: str, sources: Sources, split: int = 0) -> list[DataSet]:
    """Reads a data set by torchreid.

    Its folder is that of torchreid, below ``sources.root``, and must be there: torchreid would download some sets.
    Records are sorted by path. Training identities, which torchreid numbers in the order of a ``set``, are numbered by
    their first path, after the test identities; these keep their authors' numbers. Junk (-1) is dropped, distractors
    (0) stay in the gallery.

    Args:
        name: name of an image data set of torchreid.
        sources: where it is read from.
        split: not used; of several splits torchreid reads the first.

    Raises:
        InputError: torchreid is missing, knows no such image data set, or cannot read it.
    """
    reader = _reader(name)
    home = Path(sources.root, getattr(reader, "dataset_dir", ""))
    if not home.is_dir():
        raise InputError(f"torchreid:{name}: no folder {home}; put the data set there")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # of folders and progress
            warnings.simplefilter("ignore")
            read = reader(root=str(sources.root), verbose=False)
    except (RuntimeError, OSError, ValueError, AttributeError, AssertionError, IndexError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"torchreid:{name}: torchreid cannot read {home} ({reason}); check its files") from None
    splits: dict[str, Any] = {
        part: tuple(sorted(Record(path, pid, camid) for path, pid, camid, *_ in getattr(read, part) if pid != JUNK))
        for part in SPLITS
    }
    behind = 1 + max(record.pid for record in (*splits["query"], *splits["gallery"]))
    numbers = {pid: behind + place for place, pid in enumerate(dict.fromkeys(each.pid for each in splits["train"]))}
    splits["train"] = tuple(record._replace(pid=numbers[record.pid]) for record in splits["train"])
    return [DataSet(f"torchreid:{name}", **splits)]


def _reader(name: str) -> Any:
    """The class of torchreid that reads an image data set.

    Raises:
        InputError: torchreid is missing, or has none of this name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends its Cython code
        datasets = Extra("torchreid.reid.data.datasets", "torchreid").load()
    readers: dict[str, Any] = vars(datasets)["__image_datasets"]
    if name not in readers:
        raise InputError(f"torchreid:{name}: torchreid has no such image data set; use {', '.join(sorted(readers))}")
    return readers[name]


SCHEME = Scheme(load)
