"""QMUL i-LIDS, pedestrians (Zheng et al., Associating Groups of People, BMVC 2009)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lreid.data.datasets.layout import find_home, random_half, read_folder, require_splits
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

EXAMPLE = "0001001.jpg"  # person 1, image 1
PATTERN = r"(?P<pid>\d{4})(?P<camid>\d{3})"


def load(root: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Loads one of 10 splits of i-LIDS from ``root/ilids/i-LIDS_Pedestrian/Persons``.

    Published counts: 119 people, 476 images. 59 people are trained on with all their images; of each of the
    other 60 a query and a gallery image are drawn. The files tell no camera, so the number of a person's
    image stands for it, as in other toolkits: query and gallery image never share one.

    The splits of others were drawn without a seed, so these are lreid's own.

    Args:
        root: where the data sets lie.
        split: 0 to 9.
        seed: other splits for another seed.

    Raises:
        InputError: the folder is missing, a file name is wrong, or a person has a single image.
    """
    home = find_home(
        root,
        ["ilids/i-LIDS_Pedestrian", "i-LIDS_Pedestrian", "ilids"],
        folders=["Persons"],
        title="i-LIDS",
        source="its authors (https://www.eecs.qmul.ac.uk/~jason/data/i-LIDS_Pedestrian.tgz)",
    )
    records = read_folder(home / "Persons", PATTERN, EXAMPLE)
    trained = random_half((record.pid for record in records), seed=[seed, split])
    of_person: dict[int, list[Record]] = {}
    for record in records:
        if record.pid not in trained:
            of_person.setdefault(record.pid, []).append(record)
    alone = [pid for pid, images in of_person.items() if len(images) < 2]
    if alone:
        raise InputError(f"i-LIDS: person {alone[0]:04d} has a single image in {home / 'Persons'}; unpack it again")
    rng = np.random.default_rng([seed, split, 1])
    pairs = [[images[i] for i in rng.choice(len(images), 2, replace=False)] for images in of_person.values()]
    data_set = DataSet(
        "ilids",
        train=tuple(record for record in records if record.pid in trained),
        query=tuple(query for query, _ in pairs),
        gallery=tuple(match for _, match in pairs),
    )
    return require_splits(data_set, dict.fromkeys(("train", "query", "gallery"), home / "Persons"))
