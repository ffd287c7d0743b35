"""CUHK-SYSU as a re-identification set (Xiao et al., Joint Detection and Identification Feature Learning, CVPR 2017).

It is made for person search: whole scenes and boxes in them. ``tools/datasets.py prepare cuhk_sysu`` crops the boxes
(:mod:`lreid.data.prepare`), under the file names that the code of AKA gives them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lreid.data.datasets.layout import CameraPolicy, NotThere, cameras_of_test, find_home, read_folder, require_splits
from lreid.data.records import DataSet
from lreid.errors import InputError

CROPS = "cuhksysu4reid"
SOURCE = "its authors (https://www.ee.cuhk.edu.hk/~xgwang/PS/dataset.html, on request)"
RELEASES = ["cuhk-sysu/CUHK-SYSU", "cuhk-sysu", "CUHK-SYSU", "cuhk_sysu"]  # folders of the archive
FOLDERS = ("train", "query", "gallery")
EXAMPLE = "00001_s00012_0000003_0.jpg"  # person 1, scene 12, number of the crop, whether it is a hard one
PATTERN = r"(?P<pid>\d+)_s\d+_\d+_\d"


def load(root: Path, *, min_images: int = 1, cameras: CameraPolicy = "apart") -> DataSet:
    """Loads the crops of CUHK-SYSU from ``cuhksysu4reid`` in the folder of the archive or in ``root``.

    Published counts: train 5532 people / 15080 images (``Train.mat``), query 2900 / 2900, gallery 2900 people: the
    boxes of the query's person in the 50 scenes of ``TestG50.mat``; boxes of others are not cropped.

    There are no camera numbers; see ``cameras``.

    Args:
        root: where the data sets lie.
        min_images: leave out people with fewer training images. AKA trains on those with 4 and more.
        cameras: see :func:`lreid.data.datasets.layout.cameras_of_test`. The released code of AKA cannot score
            this set, since it has ``"same"`` and filters by camera.

    Raises:
        InputError: the crops are missing (the message says how to make them) or laid out differently, a file
            name is wrong, or a split is empty.
    """
    try:
        home = find_home(
            root,
            [*(f"{release}/{CROPS}" for release in RELEASES), CROPS],
            folders=FOLDERS,
            title="CUHK-SYSU",
            source=SOURCE,
        )
    except NotThere:
        for release in RELEASES:
            if (root / release / "annotation").is_dir():
                raise InputError(
                    f"CUHK-SYSU: {root / release} holds no {CROPS}; make it with: "
                    f"python tools/datasets.py prepare cuhk_sysu --root {root}"
                ) from None
        raise
    query_camera, gallery_camera = cameras_of_test(cameras)
    camid = {"train": 0, "query": query_camera, "gallery": gallery_camera}
    splits = {split: read_folder(home / split, PATTERN, EXAMPLE, camid=camid[split]) for split in FOLDERS}
    images = Counter(record.pid for record in splits["train"])
    splits["train"] = [record for record in splits["train"] if images[record.pid] >= min_images]
    data_set = DataSet("cuhk_sysu", tuple(splits["train"]), tuple(splits["query"]), tuple(splits["gallery"]))
    return require_splits(data_set, {split: home / split for split in FOLDERS})
