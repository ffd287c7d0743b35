"""PRID 2011 (Hirzer et al., Person Re-Identification by Descriptive and Discriminative Classification, SCIA 2011).

    datasets/prid2011/prid_2011/single_shot/{cam_a,cam_b}/      person_0001.png …      (385 and 749 images)

lreid uses the single-shot part. Both cameras saw people 1 to 200. A number above 200 means a different person in each
camera's folder.
"""

from pathlib import Path

from lreid.data.layout import random_half, read_folder, split_by_identity
from lreid.data.spec import DataSet, Layout, Spec, published

FOLDERS = {1: "cam_a", 2: "cam_b"}
EXAMPLE = "person_0001.png"
PATTERN = r"person_(?P<pid>\d+)"
SHARED = 200  # both cameras saw people 1 to 200; above, a number means a different person for each camera


def read(home: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of 10 random splits of PRID 2011 (single shot).

    Of the 200 people whom both cameras saw, 100 people are for training. For the 100 test people, the images from
    camera A are the queries. The gallery consists of camera B's images of the 100 test people and of the 549 people
    whom only camera B saw. People whom only camera A saw are not used.

    lreid draws the splits with a fixed seed; other toolkits draw random splits without a seed.
    """
    first, second = (read_folder(home / folder, PATTERN, EXAMPLE, camid=camid) for camid, folder in FOLDERS.items())
    shared = [record for record in first if record.pid <= SHARED]
    trained = random_half((record.pid for record in shared), seed=[seed, split])
    return split_by_identity("prid2011", trained, shared + second, shared, second)


SPECS = (
    Spec(
        name="prid2011",
        read=read,
        title="PRID 2011",
        source="https://www.tugraz.at/institute/icg/research/team-bischof/lrs/downloads/PRID11/",
        licence="research",
        layout=Layout(
            ("prid2011/prid_2011/single_shot", "prid2011/single_shot", "prid_2011/single_shot"), tuple(FOLDERS.values())
        ),
        splits=10,
        published=published(train=(100, 200), query=(100, 100), gallery=(649, 649), cameras=2),
    ),
)
