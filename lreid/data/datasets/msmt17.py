"""MSMT17, V1 and V2 (Wei et al., Person Transfer GAN to Bridge Domain Gap for Person Re-ID, CVPR 2018).

    datasets/msmt17/MSMT17_V1/            datasets/msmt17/MSMT17_V2/
    ├── train/0000/…                      ├── mask_train_v2/0000/…
    ├── test/0000/…                       ├── mask_test_v2/0000/…
    ├── list_train.txt    (30248 lines)   ├── list_train.txt
    ├── list_val.txt      (2373)          ├── list_val.txt
    ├── list_query.txt    (11659)         ├── list_query.txt
    └── list_gallery.txt  (82161)         └── list_gallery.txt

In V2, faces are blurred; the lifelong papers use V2. Both versions show the same people, so a model that was trained on
one version has seen the test people of the other version. The lists give the identity of each image; the third number
in a file name gives the camera. The test lists number people from 0 again, so a number in both training and test lists
means different people. `msmt17_v1` and `msmt17_v2` train only on `list_train.txt`, as in the DwoPP paper.
`msmt17_v1+val` and `msmt17_v2+val` also train on `list_val.txt`, as in many re-ID papers; this list has more images of
the same people.
"""

from functools import partial
from pathlib import Path
from typing import Literal

from lreid.data.layout import read_lines
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec, published

# The third number in a file name is the camera.
PATTERN = r"(?P<path>(?:\S*/)?\d+_\d+_(?P<camid>\d+)_\w+(?:\.[^\s./]+)?)\s+(?P<pid>\d+)"
LISTS = {split: f"list_{split}.txt" for split in ("train", "val", "query", "gallery")}
FOLDERS: dict[Literal["v1", "v2"], tuple[str, str]] = {"v1": ("train", "test"), "v2": ("mask_train_v2", "mask_test_v2")}


def read(home: Path, *, version: Literal["v1", "v2"], with_val: bool = False) -> DataSet:
    """Read one version of MSMT17; cameras are numbered 1 to 15.

    Args:
        version: ``"v1"`` or ``"v2"``; in ``"v2"``, faces are blurred.
        with_val: whether to train on ``list_val.txt`` too (32621 images in all), as in many re-ID papers, but not in
            DwoPP's paper.
    """
    train_folder, test_folder = FOLDERS[version]
    train = _read_list(home / LISTS["train"], home / train_folder)
    if with_val:
        train += _read_list(home / LISTS["val"], home / train_folder)
    return DataSet(
        f"msmt17_{version}",
        train=tuple(sorted(train)),
        query=tuple(sorted(_read_list(home / LISTS["query"], home / test_folder))),
        gallery=tuple(sorted(_read_list(home / LISTS["gallery"], home / test_folder))),
    )


def _read_list(file: Path, folder: Path) -> list[Record]:
    lines = read_lines(file, PATTERN, "0000/0000_000_01_0303morning_0015_0.jpg 0")
    return [Record(str(folder / line["path"]), int(line["pid"]), int(line["camid"])) for line in lines]


def _spec(version: Literal["v1", "v2"], with_val: bool) -> Spec:
    folder, images = f"MSMT17_{version.upper()}", 32621 if with_val else 30248
    return Spec(
        name=f"msmt17_{version}{'+val' * with_val}",
        read=partial(read, version=version, with_val=with_val),
        title=f"MSMT17 {version.upper()}",
        source="https://www.pkuvmc.com/dataset.html",
        on_request=True,
        licence="research only, no redistribution; you sign a release agreement",
        layout=Layout((f"msmt17/{folder}", folder), FOLDERS[version], tuple(LISTS.values())),
        renumbered=True,
        published=published(train=(1041, images), query=(3060, 11659), gallery=(3060, 82161), cameras=15),
    )


SPECS = tuple(_spec(version, with_val) for with_val in (False, True) for version in FOLDERS)
