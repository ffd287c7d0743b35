"""LPW, Labeled Pedestrian in the Wild (Song et al., Region-Based Quality Estimation Network, AAAI 2018).

    datasets/lpw/pep_256x128/                  datasets/LPW_s2/
    ├── scen1/view1/0/00001.jpg …              ├── bounding_box_train/    0002_c1s1_000451_03.jpg …
    ├── scen1/view2/ … view3/                  ├── query/
    ├── scen2/view1/ … view4/                  └── bounding_box_test/
    └── scen3/view1/ … view4/

LPW has half a million frames of 7694 tracks. People are numbered from 1 in each scene. Scenes 2 and 3 are for training.
In scene 1, the images of view 2 are the queries, and the images of views 1 and 3 are the gallery. Lifelong re-ID papers
that replace DukeMTMC use LPW_s2, a version of scene 2 in the layout of Market-1501.
"""

from pathlib import Path

from lreid.data.layout import read_folders
from lreid.data.listing import visible_images
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError

VIEWS = {1: 3, 2: 4, 3: 4}  # number of cameras per scene
QUERY_VIEW = (1, 2)
TEST_SCENE = 1
S2_FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
S2_EXAMPLE = "0002_c1s1_000451_03.jpg"
# The authors do not document what follows the camera in a file name.
S2_PATTERN = r"(?P<pid>-1|\d+)_c(?P<camid>\d+)(?:s\d+)?(?:_\w+)?"


def read(home: Path) -> DataSet:
    """Read LPW as released.

    Person ``n`` of scene ``s`` gets the identity ``10000 s + n``. The cameras of all scenes are numbered 1 to 11.
    """
    splits: dict[str, list[Record]] = {"train": [], "query": [], "gallery": []}
    camid = 0
    for scene, views in VIEWS.items():
        for view in range(1, views + 1):
            camid += 1
            split = "train" if scene != TEST_SCENE else "query" if (scene, view) == QUERY_VIEW else "gallery"
            splits[split] += _read_view(home / f"scen{scene}" / f"view{view}", 10000 * scene, camid)
    return DataSet("lpw", tuple(splits["train"]), tuple(splits["query"]), tuple(splits["gallery"]))


def read_s2(home: Path) -> DataSet:
    """Read LPW_s2, scene 2 of LPW in the layout of Market-1501; cameras are numbered 1 to 4.

    Lifelong re-ID papers that replace DukeMTMC use LPW_s2 (Xu et al., Self-Reinforcing Prototype Evolution, ICCV 2025).
    """
    return read_folders("lpw_s2", home, S2_FOLDERS, S2_PATTERN, S2_EXAMPLE)


def _read_view(folder: Path, pid_offset: int, camid: int) -> list[Record]:
    """Read the images of one view, which has one folder per person."""
    people = sorted(each for each in folder.iterdir() if each.is_dir())
    if other := next((each for each in people if not each.name.isdecimal()), None):
        raise InputError(f"{other}: unexpected name; expected the number of a person: rename or remove it")
    return [Record(str(path), pid_offset + int(each.name), camid) for each in people for path in visible_images(each)]


SPECS = (
    Spec(
        name="lpw",
        read=read,
        title="LPW",
        source="https://liuyu.us/dataset/lpw/index.html",
        licence="none stated; for research",
        layout=Layout(
            ("lpw/pep_256x128", "pep_256x128", "lpw"),
            tuple(f"scen{scene}/view{view}" for scene, views in VIEWS.items() for view in range(1, views + 1)),
        ),
        published=published(train=(1975, 418739), query=(756, 63118), gallery=(756, 108690), cameras=11),
    ),
    Spec(
        name="lpw_s2",
        read=read_s2,
        title="LPW_s2",
        source="https://github.com/zhoujiahuan1991/ICCV2025-SPRED",
        licence="none stated; for research",
        layout=Layout(("LPW_s2", "lpw/LPW_s2"), tuple(S2_FOLDERS.values())),
        folder="lpw",
        remark="counts are not published",
    ),
)
