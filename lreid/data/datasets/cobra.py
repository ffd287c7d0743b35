"""CoBRA, re-identification of young cattle (Perneel et al., Sensors 25(10), 2971, 2025).

    datasets/cobra/re_identification_youngstock/
    └── ORIENTATION/COW/    11438 images of 48 cows, over two years

CoBRA has neither an official split nor cameras. lreid draws ten splits. In each split, a random half of the cows is for
training. For each test cow and orientation, the first image is a query, and all other images are in the gallery. The
two sides of a cow look different, but each query has gallery images of its own orientation.
"""

import os
from pathlib import Path

from lreid.data.layout import random_half
from lreid.data.listing import numbered, visible_images
from lreid.data.records import CameraPolicy, DataSet, Names, Record, cameras_of_test
from lreid.data.spec import Layout, Spec, published


def read(home: Path, *, split: int = 0, seed: int = 0, cameras: CameraPolicy = "apart") -> DataSet:
    """Read one of ten random splits of CoBRA; cows are numbered from 1 in the order of their names."""
    folders = {Path(folder): visible_images(Path(folder)) for folder, *_ in sorted(os.walk(home))}
    folders = {folder: images for folder, images in folders.items() if images}
    pids = numbered(folder.name for folder in folders)
    camid = cameras_of_test(cameras)
    trained = random_half(pids.values(), seed=[seed, split])
    train, query, gallery = [], [], []
    for folder, images in folders.items():
        pid = pids[folder.name]
        first, *others = map(str, images)
        if pid in trained:
            train += [Record(path, pid, 0) for path in (first, *others)]
        else:
            query.append(Record(first, pid, camid["query"]))
            gallery += [Record(path, pid, camid["gallery"]) for path in others]
    names = Names({pid: name for name, pid in pids.items()})
    return DataSet("cobra", tuple(train), tuple(query), tuple(gallery), names=names, has_cameras=False)


SPECS = (
    Spec(
        name="cobra",
        read=read,
        title="CoBRA",
        source="https://zenodo.org/records/15018518",
        licence="CC BY 4.0",
        layout=Layout(("cobra",)),
        splits=10,
        cameras=False,
        published=published(train=(24, None), query=(24, None), gallery=(24, None)),
        remark="cattle",
    ),
)
