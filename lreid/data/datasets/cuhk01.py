"""CUHK01 (Li et al., Human Reidentification with Transferred Metric Learning, ACCV 2012).

    datasets/cuhk01/campus/      0001001.png …      (3884 images)

A model that was trained on CUHK02 has seen the test people of CUHK01, because the training pair P1 of CUHK02 shows the
same people. The test pair P5 of CUHK02 shows other people.
"""

from pathlib import Path

from lreid.data.layout import random_half, read_folder, split_by_identity
from lreid.data.spec import DataSet, Layout, Spec, published

EXAMPLE = "0001001.png"  # person 1, image 1
PATTERN = r"(?P<pid>\d{4})(?P<camid>\d{3})"


def read(home: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of 20 random splits of CUHK01.

    Images 1 and 2 of a person come from the first camera, images 3 and 4 from the second camera. Half of the people are
    for training. For the test people, one camera's images are the queries, and the other camera's images are the
    gallery. Splits ``2 k`` and ``2 k + 1`` have the same test people; the second split exchanges the cameras.

    lreid draws the splits with a fixed seed; other toolkits draw random splits without a seed.
    """
    images = read_folder(home / "campus", PATTERN, EXAMPLE)
    records = [image._replace(camid=(image.camid + 1) // 2) for image in images]  # 1, 2, 3, 4 -> 1, 1, 2, 2
    trained = random_half((record.pid for record in records), seed=[seed, split // 2])
    views = [[record for record in records if record.camid == camera] for camera in (1, 2)]
    return split_by_identity("cuhk01", trained, records, views[split % 2], views[1 - split % 2])


SPECS = (
    Spec(
        name="cuhk01",
        read=read,
        title="CUHK01",
        source="https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html",
        on_request=True,
        licence="research only",
        layout=Layout(("cuhk01", "CUHK01"), ("campus",)),
        splits=20,
        published=published(train=(485, 1940), query=(486, 972), gallery=(486, 972), cameras=2),
    ),
)
