"""LPW, Labeled Pedestrian in the Wild (Song et al., Region-Based Quality Estimation Network, AAAI 2018)."""

from __future__ import annotations

from pathlib import Path

from lreid.data.datasets.layout import find_home, read_folders, require_splits, visible_images
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

VIEWS = {1: 3, 2: 4, 3: 4}  # cameras of every scene
QUERY_VIEW = (1, 2)
TEST_SCENE = 1


def load(root: Path) -> DataSet:
    """Loads LPW as released from ``root/lpw/pep_256x128``.

    Published counts: 2731 people, 590547 images of 7694 tracks, 11 cameras in three scenes. Scenes 2 and 3 are
    trained on (1975 people / 418739 images); of scene 1, view 2 is the query (756 / 63118) and views 1 and 3
    are the gallery (756 / 108690). Every scene numbers its people anew: person ``n`` of scene ``s`` gets the
    identity ``10000 s + n``; cameras are numbered 1 to 11 from scene to scene.

    Raises:
        InputError: a folder is missing or laid out differently, or a split is empty.
    """
    home = find_home(
        root,
        ["lpw/pep_256x128", "pep_256x128", "lpw"],
        folders=[f"scen{scene}/view{view}" for scene, views in VIEWS.items() for view in range(1, views + 1)],
        title="LPW",
        source="its authors (https://liuyu.us/dataset/lpw/index.html)",
    )
    splits: dict[str, list[Record]] = {"train": [], "query": [], "gallery": []}
    camid = 0
    for scene, views in VIEWS.items():
        for view in range(1, views + 1):
            camid += 1
            split = "train" if scene != TEST_SCENE else "query" if (scene, view) == QUERY_VIEW else "gallery"
            splits[split] += _read_view(home / f"scen{scene}" / f"view{view}", 10000 * scene, camid)
    data_set = DataSet("lpw", tuple(splits["train"]), tuple(splits["query"]), tuple(splits["gallery"]))
    return require_splits(data_set, dict.fromkeys(splits, home))


def load_s2(root: Path) -> DataSet:
    """Loads LPW_s2, scene 2 of LPW in the layout of Market-1501, from ``root/LPW_s2``.

    The lifelong papers that replace DukeMTMC use it (Xu et al., Self-Reinforcing Prototype Evolution, ICCV 2025). Its
    counts are not published; 4 cameras, numbered 1 to 4.

    Raises:
        InputError: the folder is missing or laid out differently, a file name is wrong, or a split is empty.
    """
    folders = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
    home = find_home(
        root,
        ["LPW_s2", "lpw/LPW_s2"],
        folders=folders.values(),
        title="LPW_s2",
        source="its authors (https://github.com/zhoujiahuan1991/ICCV2025-SPRED)",
    )
    return read_folders("lpw_s2", home, folders, r"(?P<pid>-1|\d+)_c(?P<camid>\d)", "0002_c1s1_000451_03.jpg")


def _read_view(folder: Path, pid_offset: int, camid: int) -> list[Record]:
    """One folder for every person."""
    records = []
    for person in sorted(folder.iterdir()):
        if not person.is_dir():
            continue
        if not person.name.isdecimal():
            raise InputError(f"{person}: unexpected name; expected the number of a person: rename or remove it")
        pid = pid_offset + int(person.name)
        records += [Record(str(path), pid, camid) for path in visible_images(person, (".jpg",))]
    return records
