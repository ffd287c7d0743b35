"""MSMT17, V1 and V2 (Wei et al., Person Transfer GAN to Bridge Domain Gap for Person Re-ID, CVPR 2018).

Both versions hold the same images of the same people; V2 has their faces blurred. Four lists say what is
what, one ``path identity`` a line. The identities of the test lists are numbered from 0 again: they are other
people than those of the training lists with the same numbers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from lreid.data.datasets.layout import find_home, require_splits
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

# 0000_000_01_0303morning_0015_0.jpg: the third number is the camera
PATTERN = r"\d+_\d+_(?P<camid>\d+)_"


def load(root: Path, *, version: Literal["v1", "v2"], with_val: bool = False) -> DataSet:
    """Loads MSMT17 from ``root/msmt17/MSMT17_V1`` (``_V2``) or ``root/MSMT17_V1`` (``_V2``).

    Published counts: ``list_train.txt`` 1041 identities / 30248 images, ``list_val.txt`` 2373 more images of
    the same identities, query 11659, gallery 82161 (3060 identities); 15 cameras, numbered 1 to 15.

    Args:
        root: where the data sets lie.
        version: ``"v1"``, or ``"v2"`` with the faces blurred.
        with_val: train on ``list_val.txt`` too (32621 images), as many re-ID papers do. DwoPP's does not, and
            neither does lreid by default.

    Raises:
        InputError: the folder is missing or laid out differently, a list has a faulty line, or a split is
            empty.
    """
    train_folder, test_folder = {"v1": ("train", "test"), "v2": ("mask_train_v2", "mask_test_v2")}[version]
    lists = {split: f"list_{split}.txt" for split in ("train", "val", "query", "gallery")}
    folder = f"MSMT17_{version.upper()}"
    home = find_home(
        root,
        [f"msmt17/{folder}", folder],
        folders=[train_folder, test_folder],
        files=lists.values(),
        title=f"MSMT17 {version.upper()}",
        source="its authors (https://www.pkuvmc.com/dataset.html, on request)",
    )
    train = _read_list(home / lists["train"], home / train_folder)
    if with_val:
        train += _read_list(home / lists["val"], home / train_folder)
    data_set = DataSet(
        f"msmt17_{version}",
        train=tuple(sorted(train)),
        query=tuple(sorted(_read_list(home / lists["query"], home / test_folder))),
        gallery=tuple(sorted(_read_list(home / lists["gallery"], home / test_folder))),
    )
    return require_splits(data_set, {split: home / lists[split] for split in ("train", "query", "gallery")})


def _read_list(file: Path, folder: Path) -> list[Record]:
    records = []
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        match = re.fullmatch(r"(?P<path>\S+)\s+(?P<pid>\d+)", line.strip())
        camera = match and re.match(PATTERN, Path(match["path"]).name)
        if match is None or camera is None:
            raise InputError(
                f"{file}:{number}: unexpected line {line.strip()!r}; expected one like "
                "'0000/0000_000_01_0303morning_0015_0.jpg 0': take the list from the archive again"
            )
        records.append(Record(str(folder / match["path"]), int(match["pid"]), int(camera["camid"])))
    return records
