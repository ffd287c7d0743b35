"""CUHK03 (Li et al., DeepReID, CVPR 2014), with its classic protocol and the new one (Zhong et al., CVPR 2017).

The release is one MATLAB file with all images. ``tools/datasets.py prepare cuhk03_detected`` writes them as PNG files
(:mod:`lreid.data.prepare`), under the file names that the new protocol lists.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lreid.data.datasets.layout import find_home, read_folder, require_splits
from lreid.data.datasets.matlab import MatlabFile
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

HOMES = ["cuhk03", "CUHK03"]
SOURCE = "its authors (https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html, on request)"
TEST_SETS = "classic_test_sets.json"  # written by prepare: 20 lists of [pair, person]
EXAMPLE = "1_001_1_01.png"  # pair of cameras 1, person 1, view 1, image 1
PATTERN = r"(?P<pair>\d)_(?P<pid>\d+)_(?P<camid>\d)_\d+"
# What the split lists of the new protocol are called in its files, and from which number positions count.
INDICES = {"train": "train_idx", "query": "query_idx", "gallery": "gallery_idx"}


def load(root: Path, *, boxes: Literal["detected", "labeled"]) -> DataSet:
    """Loads CUHK03 with the new protocol from ``root/cuhk03``.

    Published counts: train 767 people / 7365 images detected, 7368 labelled; query 700 / 1400; gallery 700 / 5332
    detected, 5328 labelled; 2 views, numbered 1 and 2 (each of five pairs of cameras has both).

    Args:
        root: where the data sets lie.
        boxes: found by a detector, or drawn by people.

    Raises:
        InputError: a file is missing or is no such file, the images have not been prepared, or a split is empty.
    """
    config = f"cuhk03_new_protocol_config_{boxes}.mat"
    home = _find(root, boxes, [config])
    folder = home / f"images_{boxes}"
    names, pids, positions = _read_config(home / config)
    splits: dict[str, Any] = {
        split: tuple(sorted(_record(folder, names[i], pids[i], home / config) for i in chosen))
        for split, chosen in positions.items()
    }
    return require_splits(DataSet(f"cuhk03_{boxes}", **splits), dict.fromkeys(splits, home / config))


def load_classic(
    root: Path, *, boxes: Literal["detected", "labeled"], single_shot: bool = False, split: int = 0, seed: int = 0
) -> DataSet:
    """Loads one of the 20 classic test sets of CUHK03 from ``root/cuhk03``.

    100 people are tested on and 1367 trained on. All images of the tested ones are queries and gallery, as in
    torchreid: the camera filter leaves every query the images of the other view. The original figures took a
    single gallery image a person (``single_shot``). Person ``n`` of camera pair ``p`` gets the identity
    ``10000 p + n``.

    Args:
        root: where the data sets lie.
        boxes: found by a detector, or drawn by people.
        single_shot: Rank-k as in the original figures, see :func:`lreid.retrieval.evaluate_single_shot`.
        split: which published test set, 0 to 19.
        seed: not used, since the test sets come with the data set.

    Raises:
        InputError: a file is missing or damaged, the images have not been prepared, or a split is empty.
    """
    home = _find(root, boxes, [TEST_SETS])
    folder = home / f"images_{boxes}"
    try:
        tested = {10000 * pair + person for pair, person in json.loads((home / TEST_SETS).read_text())[split]}
    except (ValueError, TypeError, LookupError):
        raise InputError(f"{home / TEST_SETS}: has no test set {split}; delete it and prepare CUHK03 again") from None
    records = [
        record._replace(pid=10000 * int(Path(record.path).name[0]) + record.pid)
        for record in read_folder(folder, PATTERN, EXAMPLE, suffix=".png")
    ]
    test = tuple(record for record in records if record.pid in tested)
    train = tuple(record for record in records if record.pid not in tested)
    name = f"cuhk03_classic_{boxes}" + ("_single_shot" if single_shot else "")
    data_set = DataSet(name, train, test, test, single_shot=single_shot)
    return require_splits(data_set, dict.fromkeys(INDICES, folder))


def _find(root: Path, boxes: str, files: list[str]) -> Path:
    """The folder of CUHK03, with its images unpacked."""
    home = find_home(root, HOMES, folders=[], title="CUHK03", source=SOURCE)
    prepared = [TEST_SETS, f"images_{boxes}"]
    missing = [name for name in [*prepared[1:], *files] if not (home / name).exists()]
    if set(missing) & set(prepared):
        raise InputError(
            f"CUHK03: {home} holds no {' and no '.join(missing)}; put cuhk03_release/cuhk-03.mat there and run: "
            f"python tools/datasets.py prepare cuhk03_{boxes} --root {root}"
        )
    return find_home(root, HOMES, folders=prepared[1:], files=files, title="CUHK03", source=SOURCE)


def _read_config(file: Path) -> tuple[list[str], list[int], dict[str, list[int]]]:
    """File names, identities and, for every split, positions from 0, out of a file of the new protocol."""
    with MatlabFile(file) as content:
        try:
            names = [content.text(cell) for cell in np.ravel(content["filelist"])]
            pids = [int(pid) for pid in np.ravel(content["labels"])]
            positions = {split: [int(i) - 1 for i in np.ravel(content[name])] for split, name in INDICES.items()}
            if len(names) != len(pids) or any(not 0 <= i < len(names) for p in positions.values() for i in p):
                raise ValueError
        except (KeyError, ValueError, TypeError):
            raise InputError(
                f"{file}: is no file of the new protocol of CUHK03 (filelist, labels, train_idx, query_idx, "
                "gallery_idx); get it from https://github.com/zhunzhong07/person-re-ranking"
            ) from None
    return names, pids, positions


def _record(folder: Path, name: str, pid: int, config: Any) -> Record:
    match = re.match(PATTERN, name)
    if match is None:
        raise InputError(f"{config}: lists the image {name!r}; expected one like {EXAMPLE}: get the file again")
    return Record(str(folder / name), pid, int(match["camid"]))
