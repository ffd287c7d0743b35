"""CUHK03, with its classic protocol and its new protocol (Li et al., DeepReID, CVPR 2014; Zhong et al., CVPR 2017).

    datasets/cuhk03/
    ├── cuhk03_release/cuhk-03.mat
    ├── cuhk03_new_protocol_config_detected.mat
    ├── cuhk03_new_protocol_config_labeled.mat
    ├───────────────────────────────────────
    ├── images_detected/    1_001_1_01.png …   (14097 images)
    ├── images_labeled/     1_001_1_01.png …   (14096)
    └── classic_test_sets.json

`lreid data prepare cuhk03_detected` writes all files below the horizontal line. Images that torchreid has prepared also
work. The two config files are from <https://github.com/zhunzhong07/person-re-ranking>. `cuhk-03.mat` may be a MATLAB
file of version 7.3 or of an older version. Reading an older file needs several GiB of memory.

A file name gives the pair of cameras, the person, the view (which lreid uses as the camera) and the number of the
image. A detector found the `detected` boxes; humans drew the `labeled` boxes. In a classic test set, every image of 100
people is both a query and a gallery image. Data sets with `_single_shot` in their name follow the original protocol:
Rank-k is computed on galleries with one randomly drawn image per person.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from tqdm import tqdm

from lreid.data.images import write_image
from lreid.data.layout import read_folder
from lreid.data.matlab import MatlabFile
from lreid.data.records import DataSet, Record
from lreid.data.spec import Conversion, Counts, Layout, Spec, published
from lreid.errors import InputError
from lreid.utils.files import folder_at_once, write_file
from lreid.utils.reading import naming_damage

HOMES = ("cuhk03", "CUHK03")
RELEASE = "cuhk03_release/cuhk-03.mat"
TEST_SETS = "classic_test_sets.json"  # written by prepare: 20 lists of [pair, person]
EXAMPLE = "1_001_1_01.png"  # pair of cameras 1, person 1, view 1, image 1
PATTERN = r"(?P<pair>\d)_(?P<pid>\d+)_(?P<camid>\d)_\d+"
Boxes = Literal["detected", "labeled"]
CONFIGS: dict[Boxes, str] = {
    "detected": "cuhk03_new_protocol_config_detected.mat",
    "labeled": "cuhk03_new_protocol_config_labeled.mat",
}
# The names of the split lists in the files of the new protocol.
INDICES = {"train": "train_idx", "query": "query_idx", "gallery": "gallery_idx"}


def read(home: Path, *, boxes: Boxes) -> DataSet:
    """Read CUHK03 with the new protocol; the two views of each pair of cameras serve as cameras 1 and 2.

    Args:
        boxes: ``"detected"`` by a detector, or ``"labeled"`` manually.
    """
    folder, config = home / f"images_{boxes}", home / CONFIGS[boxes]
    names, pids, positions = _read_config(config)
    splits: dict[str, Any] = {
        split: tuple(sorted(_record(folder, names[i], pids[i], config) for i in chosen))
        for split, chosen in positions.items()
    }
    return DataSet(f"cuhk03_{boxes}", **splits)


def read_classic(home: Path, *, boxes: Boxes, single_shot: bool = False, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of the 20 classic test sets of CUHK03.

    100 people are for testing and 1367 people for training. Every image of the test people is both a query and a
    gallery image, as in torchreid. The camera filter limits the matches of a query to images from the other view. In
    the original protocol (``single_shot``), the gallery has one image per person. Person ``n`` of camera pair ``p``
    gets the identity ``10000 p + n``.

    Args:
        boxes: ``"detected"`` by a detector, or ``"labeled"`` manually.
        single_shot: whether to compute Rank-k by the original protocol, see
            :func:`lreid.retrieval.evaluate_single_shot`.
    """
    folder = home / f"images_{boxes}"
    with naming_damage(home / TEST_SETS, f"has no test set {split}", "delete it and prepare CUHK03 again"):
        tested = {10000 * pair + person for pair, person in json.loads((home / TEST_SETS).read_text())[split]}
    images = read_folder(folder, PATTERN, EXAMPLE)
    records = [image._replace(pid=10000 * int(Path(image.path).name[0]) + image.pid) for image in images]
    test = tuple(record for record in records if record.pid in tested)
    train = tuple(record for record in records if record.pid not in tested)
    name = f"cuhk03_classic_{boxes}" + ("_single_shot" if single_shot else "")
    return DataSet(name, train, test, test, single_shot=single_shot)


def _read_config(file: Path) -> tuple[list[str], list[int], dict[str, list[int]]]:
    """Read a config file of the new protocol: image names, identities, and the positions (from 0) of each split."""
    advice = "download it from https://github.com/zhunzhong07/person-re-ranking"
    with naming_damage(file, "is not a file of CUHK03's new protocol", advice), MatlabFile(file) as content:
        names = [content.text(cell) for cell in np.ravel(content["filelist"])]
        pids = [int(pid) for pid in np.ravel(content["labels"])]
        positions = {split: [int(i) - 1 for i in np.ravel(content[name])] for split, name in INDICES.items()}
        if len(names) != len(pids) or any(not 0 <= i < len(names) for p in positions.values() for i in p):
            raise ValueError("numbers of images and labels differ")
    return names, pids, positions


def _record(folder: Path, name: str, pid: int, config: Any) -> Record:
    match = re.fullmatch(PATTERN, Path(name).stem)
    if match is None:
        raise InputError(f"{config}: lists the image {name!r}; expected one like {EXAMPLE}: download the file again")
    return Record(str(folder / name), pid, int(match["camid"]))


def convert(home: Path) -> None:
    """Convert ``cuhk-03.mat``: write the images as PNG files and the 20 classic test sets as a JSON file.

    The files have the same names as in the lists of the new protocol. The name ``1_001_2_06.png`` gives the pair of
    cameras, the person, the view and the number of the image, all counted from 1. The first five images of a person are
    from view 1, and the rest are from view 2. Empty images are skipped.

    Raises:
        InputError: ``cuhk-03.mat`` is not a valid file of CUHK03.
    """
    fault = "is not the file of CUHK03, which has detected, labeled and testsets"
    with naming_damage(home / RELEASE, fault, "download it again"), MatlabFile(home / RELEASE) as content:
        for boxes in CONFIGS:
            with folder_at_once(home / f"images_{boxes}", resume=True) as folder:
                if folder is not None:
                    _write_people(content, boxes, folder)
        test_sets = [content.value(cell).tolist() for cell in np.ravel(content["testsets"])]
        test_sets = [[[int(pair), int(person)] for pair, person in people] for people in test_sets]
    write_file(home / TEST_SETS, lambda file: file.write(json.dumps(test_sets).encode()))


def _write_people(content: MatlabFile, boxes: str, folder: Path) -> None:
    pairs = np.ravel(content[boxes])
    for pair, cell in enumerate(pairs, start=1):
        people = content.value(cell)  # (people, 10) cells
        progress = tqdm(people, desc=f"{boxes}, cameras {pair} of {len(pairs)}", unit="person", disable=None)
        for person, images in enumerate(progress, start=1):
            for number, image in enumerate(images, start=1):
                file = folder / f"{pair}_{person:03d}_{1 if number <= 5 else 2}_{number:02d}.png"
                if file.exists():
                    continue
                pixels = content.value(image)  # (H, W, 3) uint8
                if pixels.ndim == 3 and pixels.size:
                    write_image(file, Image.fromarray(np.ascontiguousarray(pixels)), "PNG")


def _spec(name: str, read: Callable[..., DataSet], boxes: Boxes, file: str, counts: Counts, splits: int = 1) -> Spec:
    return Spec(
        name=name,
        read=partial(read, boxes=boxes),
        title="CUHK03",
        source="https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html",
        on_request=True,
        licence="research only",
        layout=Layout(HOMES, (f"images_{boxes}",), (file,)),
        conversion=Conversion(convert, Layout(HOMES, files=(RELEASE,)), (f"images_{boxes}/", TEST_SETS)),
        splits=splits,
        published=counts,
    )


def _new(boxes: Boxes, train: int, gallery: int) -> Spec:
    counts = published(train=(767, train), query=(700, 1400), gallery=(700, gallery), cameras=2)
    return _spec(f"cuhk03_{boxes}", read, boxes, CONFIGS[boxes], counts)


def _classic(boxes: Boxes, single_shot: bool) -> Spec:
    name = f"cuhk03_classic_{boxes}{'_single_shot' * single_shot}"
    counts = published(train=(1367, None), query=(100, None), gallery=(100, None), cameras=2)
    return _spec(name, partial(read_classic, single_shot=single_shot), boxes, TEST_SETS, counts, splits=20)


SPECS = (
    _new("detected", 7365, 5332),
    _new("labeled", 7368, 5328),
    *(_classic(boxes, single_shot) for single_shot in (False, True) for boxes in CONFIGS),
)
