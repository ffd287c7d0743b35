"""Read data sets with torchreid's readers; ``torchreid:market1501`` is read by torchreid's reader of ``market1501``.

``torchreid:`` also works for data sets that a script registered with ``torchreid.data.register_image_dataset``.
"""

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

from lreid.data.records import DataSet, Record
from lreid.data.schemes import Scheme, Sources
from lreid.errors import InputError
from lreid.utils.extras import Extra
from lreid.utils.identities import JUNK

SPLITS = ("train", "query", "gallery")


def load(name: str, sources: Sources, split: int = 0) -> list[DataSet]:
    """Read a data set with torchreid's reader.

    The data set must be in ``sources.root``, in a folder with the name that torchreid expects. If the folder of the
    data set is missing, lreid raises an error, so that torchreid does not try to download it. Records are sorted by
    path. Test identities have the numbers of the data set's authors. torchreid numbers training identities in the
    arbitrary order of a ``set``. lreid instead sorts training identities by the path of their first image, and gives
    them the numbers after the last test identity. Junk (-1) is dropped, and distractors (0) stay in the gallery.

    Args:
        name: name of an image data set of torchreid.
        sources: settings for reading, of which only ``root``, the folder of all data sets, is used.
        split: not used, because torchreid always reads the first split.

    Raises:
        InputError: torchreid is not installed, has no image data set of this name, or cannot read the data set.
    """
    reader = _reader(name)
    home = Path(sources.root, getattr(reader, "dataset_dir", ""))
    if not home.is_dir():
        raise InputError(f"torchreid:{name}: no folder {home}; put the data set there")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # torchreid prints its progress
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
    """Return torchreid's reader class for an image data set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchreid warns that its Cython code is not compiled
        datasets = Extra("torchreid.reid.data.datasets", "torchreid").load()
    readers: dict[str, Any] = vars(datasets)["__image_datasets"]
    if name not in readers:
        raise InputError(f"torchreid:{name}: torchreid has no such image data set; use {', '.join(sorted(readers))}")
    return readers[name]


SCHEME = Scheme(load)
