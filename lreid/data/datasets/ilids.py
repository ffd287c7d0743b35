"""i-LIDS, pedestrians (Zheng et al., Associating Groups of People, BMVC 2009).

    datasets/ilids/i-LIDS_Pedestrian/Persons/      0001001.jpg …      (476 images)

The images come from the i-LIDS data set of the UK Home Office. The release does not name the cameras, so lreid numbers
the images of each person and uses this number as the camera.
"""

from operator import attrgetter
from pathlib import Path

import numpy as np

from lreid.data.layout import random_half, read_folder
from lreid.data.records import DataSet, grouped
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError

EXAMPLE = "0001001.jpg"  # person 1, image 1
PATTERN = r"(?P<pid>\d{4})(?P<camid>\d{3})"


def read(home: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of 10 random splits of i-LIDS.

    All images of 59 people are for training. For each of the 60 test people, a query and a gallery image are drawn at
    random; their cameras always differ.

    lreid draws the splits with a fixed seed; other toolkits draw random splits without a seed.
    """
    records = read_folder(home / "Persons", PATTERN, EXAMPLE)
    trained = random_half((record.pid for record in records), seed=[seed, split])
    of_person = grouped((record for record in records if record.pid not in trained), attrgetter("pid"))
    single = [pid for pid, images in of_person.items() if len(images) < 2]
    if single:
        raise InputError(f"i-LIDS: person {single[0]:04d} has a single image in {home / 'Persons'}; unpack it again")
    rng = np.random.default_rng([seed, split, 1])
    pairs = [[images[i] for i in rng.choice(len(images), 2, replace=False)] for images in of_person.values()]
    return DataSet(
        "ilids",
        train=tuple(record for record in records if record.pid in trained),
        query=tuple(query for query, _ in pairs),
        gallery=tuple(match for _, match in pairs),
    )


SPECS = (
    Spec(
        name="ilids",
        read=read,
        title="i-LIDS",
        source="https://www.eecs.qmul.ac.uk/~jason/data/i-LIDS_Pedestrian.tgz",
        licence="research",
        layout=Layout(("ilids/i-LIDS_Pedestrian", "i-LIDS_Pedestrian", "ilids"), ("Persons",)),
        splits=10,
        published=published(train=(59, None), query=(60, 60), gallery=(60, 60)),
    ),
)
