"""Market-1501 (Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015).

    datasets/market1501/
    ├── bounding_box_train/    0002_c1s1_000451_03.jpg …   (12936 images)
    ├── query/                 0001_c1s1_001051_00.jpg …   (3368)
    └── bounding_box_test/     0000_c1s1_000151_01.jpg …   (19732; 15913 without junk)

In a file name, the number before `_c` is the person, and the number after it is the camera. lreid drops images of
person `-1` (junk, which are bad detections). Images of person `0000` (distractors) are only used in the gallery; no
model is trained on them. The folder may also be called `Market-1501-v15.09.15`, as in the archive.
"""

from pathlib import Path

from lreid.data.layout import read_folders
from lreid.data.spec import DataSet, Layout, Spec, published

FOLDERS = {"train": "bounding_box_train", "query": "query", "gallery": "bounding_box_test"}
EXAMPLE = "0002_c1s1_000451_03.jpg"  # person 2, camera 1; person -1 is junk, 0 a distractor
PATTERN = r"(?P<pid>-1|\d+)_c(?P<camid>\d+)s\d+_\d+_\d+"


def read(home: Path) -> DataSet:
    """Read Market-1501; cameras are numbered 1 to 6."""
    return read_folders("market1501", home, FOLDERS, PATTERN, EXAMPLE)


SPECS = (
    Spec(
        name="market1501",
        read=read,
        title="Market-1501",
        source="https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html",
        licence="none stated; released for academic research",
        layout=Layout(
            ("market1501/Market-1501-v15.09.15", "Market-1501-v15.09.15", "market1501"), tuple(FOLDERS.values())
        ),
        published=published(train=(751, 12936), query=(750, 3368), gallery=(751, 15913), cameras=6),
    ),
)
