"""CUHK02 (Li and Wang, Locally Aligned Feature Transforms across Views, CVPR 2013).

    datasets/cuhk02/Dataset/{P1,P2,P3,P4,P5}/{cam1,cam2}/      001_….png      (7264 images in all)

A model that was trained on CUHK02 has seen the test people of CUHK01, because the training pair P1 shows the same
people. The test pair P5 shows other people.
"""

from pathlib import Path

from lreid.data.layout import read_folder
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec, published

PAIRS = ("P1", "P2", "P3", "P4", "P5")  # pairs of cameras; the last one is the test set
EXAMPLE = "001_0001.png"  # person 1 of the pair
PATTERN = r"(?P<pid>\d+)_\w+"


def read(home: Path) -> DataSet:
    """Read CUHK02, which has five pairs of cameras and two images per person and camera.

    The five pairs of cameras saw different people. Pairs P1 to P4 are for training. In pair P5, the images of camera 1
    are the queries, and the images of camera 2 are the gallery. File names number the people from 1 in every pair, so
    person ``n`` of pair ``p`` gets the identity ``10000 p + n``. Cameras are numbered 1 to 10.
    """
    views: list[list[Record]] = []
    for number, pair in enumerate(PAIRS, start=1):
        for camera in (1, 2):
            records = read_folder(home / pair / f"cam{camera}", PATTERN, EXAMPLE, camid=2 * number - 2 + camera)
            views.append([record._replace(pid=10000 * number + record.pid) for record in records])
    *trained, query, gallery = views
    return DataSet("cuhk02", tuple(record for view in trained for record in view), tuple(query), tuple(gallery))


SPECS = (
    Spec(
        name="cuhk02",
        read=read,
        title="CUHK02",
        source="https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html",
        on_request=True,
        licence="research only",
        layout=Layout(
            ("cuhk02/Dataset", "cuhk02", "CUHK02/Dataset"),
            tuple(f"{pair}/cam{camera}" for pair in PAIRS for camera in (1, 2)),
        ),
        published=published(train=(1577, 6308), query=(239, 478), gallery=(239, 478), cameras=10),
    ),
)
