"""CUHK01 (Li et al., Human Reidentification with Transferred Metric Learning, ACCV 2012).

    datasets/cuhk01/campus/      0001001.png …      (3884 images)

CUHK02 shows the same people in its training pair P1, so a model that was trained on one of the two data sets has seen
people of the other. CUHK02's test pair P5 shows other people.
"""

from pathlib import Path

from lreid.data.layout import random_half, read_folder, require_splits
from lreid.data.records import DataSet
from lreid.data.spec import Layout, Spec, published

EXAMPLE = "0001001.png"  # person 1, image 1
PATTERN = r"(?P<pid>\d{4})(?P<camid>\d{3})"


def read(home: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of 20 splits of CUHK01.

    Images 1 and 2 of a person come from one camera, images 3 and 4 from the other. Half of the people are for training.
    For the others, the images of one camera are queries and those of the other camera are the gallery. Splits ``2 k``
    and ``2 k + 1`` have the same test people, with the cameras swapped.

    lreid draws its own splits with a seed, because other toolkits draw theirs without one.
    """
    records = [
        record._replace(camid=(record.camid + 1) // 2)  # 1, 2, 3, 4 -> 1, 1, 2, 2
        for record in read_folder(home / "campus", PATTERN, EXAMPLE)
    ]
    trained = random_half((record.pid for record in records), seed=[seed, split // 2])
    tested = [record for record in records if record.pid not in trained]
    query_camera = 1 + split % 2
    data_set = DataSet(
        "cuhk01",
        train=tuple(record for record in records if record.pid in trained),
        query=tuple(record for record in tested if record.camid == query_camera),
        gallery=tuple(record for record in tested if record.camid != query_camera),
    )
    return require_splits(data_set, dict.fromkeys(("train", "query", "gallery"), home / "campus"))


SPECS = (
    Spec(
        name="cuhk01",
        read=read,
        title="CUHK01",
        source="https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html",
        on_request=True,
        licence="research only",
        layout=Layout(("cuhk01", "CUHK01"), ("campus",)),
        folder="cuhk01",
        splits=20,
        published=published(train=(485, 1940), query=(486, 972), gallery=(486, 972), cameras=2),
    ),
)
