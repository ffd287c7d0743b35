"""CUHK-SYSU (Xiao et al., Joint Detection and Identification Feature Learning for Person Search, CVPR 2017).

    datasets/cuhk-sysu/CUHK-SYSU/
    ├── Image/SSM/                             s1.jpg …
    ├── annotation/test/train_test/            Train.mat, TestG50.mat, …
    └── cuhksysu4reid/
        ├── train/      00001_s00012_0000003_0.jpg …   (15080 images: person, scene, number, whether it is hard)
        ├── query/                                     (2900)
        └── gallery/

CUHK-SYSU is a data set for person search: it consists of scenes with bounding boxes of people. lreid needs the release
with `Train.mat` and `TestG50.mat`; the other release has no identities. `lreid data prepare cuhk_sysu` writes crops of
the boxes to `cuhksysu4reid/`, with the file names and the JPEG quality of AKA's code. lreid also reads crops in this
layout that other code wrote. The folder `cuhksysu4reid/` may also be placed directly in the folder of all data sets.

The gallery contains only images of people who are also queries, so CUHK-SYSU is easier than other data sets. CUHK-SYSU
has no cameras (see `BENCHMARK.CAMERAS`), so AKA's own code, which filters by camera, cannot compute scores for it.
`cuhk_sysu_sub` leaves out people with fewer than four training images, as AKA does before it selects 500 people.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from lreid.data.images import FORMATS, write_image
from lreid.data.layout import read_folder
from lreid.data.matlab import read_matlab
from lreid.data.records import SPLITS, CameraPolicy, DataSet, cameras_of_test
from lreid.data.spec import Conversion, Layout, Spec, published
from lreid.errors import InputError
from lreid.utils.files import folder_at_once
from lreid.utils.reading import naming_damage

CROPS = "cuhksysu4reid"
HOMES = ("cuhk-sysu/CUHK-SYSU", "cuhk-sysu", "CUHK-SYSU", "cuhk_sysu")  # of the release
ANNOTATION = "annotation/test/train_test"
SCENES = "Image/SSM"
EXAMPLE = "00001_s00012_0000003_0.jpg"  # person 1, scene 12, number of the crop, whether it is a hard one
PATTERN = r"(?P<pid>\d+)_s\d+_\d+_\d"


def read(home: Path, *, min_images: int = 1, cameras: CameraPolicy = "apart") -> DataSet:
    """Read the crops of CUHK-SYSU.

    For each query, the gallery contains the boxes of the same person in the query's 50 scenes of ``TestG50.mat``. Boxes
    of other people in the query's scenes are not cropped. AKA's released code gives all images the same camera
    (``cameras="same"``) and then applies the camera filter, which leaves no matches.

    Args:
        min_images: minimum number of images of a person in ``train``; AKA uses 4.
        cameras: rule for the camera numbers of queries and gallery, see :func:`lreid.data.records.cameras_of_test`.
    """
    camid = cameras_of_test(cameras)
    splits = {split: read_folder(home / split, PATTERN, EXAMPLE, camid=camid[split]) for split in SPLITS}
    images = Counter(record.pid for record in splits["train"])
    splits["train"] = [record for record in splits["train"] if images[record.pid] >= min_images]
    records: dict[str, Any] = {split: tuple(records) for split, records in splits.items()}
    return DataSet("cuhk_sysu", **records, has_cameras=False)


class Crop(NamedTuple):
    """A bounding box in a scene of CUHK-SYSU."""

    scene: str
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels
    file: str


def convert(home: Path) -> None:
    """Crop the people of CUHK-SYSU into ``cuhksysu4reid/{train,query,gallery}``.

    Training crops come from ``Train.mat``; queries and gallery come from ``TestG50.mat``. The gallery consists of the
    boxes of people who are queries; scenes without such a box are skipped. File names and JPEG quality (75) are those
    of AKA's code: ``00012_s00345_0000067_0.jpg`` gives person, scene, number of the crop, and whether it is marked as
    hard.

    Raises:
        InputError: an annotation or scene is damaged, or a scene is missing.
    """
    with folder_at_once(home / CROPS, resume=True) as folder:
        if folder is not None:
            for split, crops in _read_annotations(home / ANNOTATION).items():
                _write_crops(crops, home / SCENES, folder / split)


def _read_annotations(folder: Path) -> dict[str, list[Crop]]:
    """Read the boxes to crop for every split; the number of a crop is its position in the annotation."""
    file = folder / "Train.mat"
    try:
        train = []
        for person in _listed(read_matlab(file)["Train"]):
            name, _, scenes = person.values()  # by position, as AKA's code does
            for scene in _listed(scenes):
                train.append((name, dict(zip(("imname", "idlocate", "ishard"), scene.values(), strict=True))))
        crops = {"train": _crops(train)}
        file = folder / "TestG50.mat"
        tests = _listed(read_matlab(file)["TestG50"])
        crops["query"] = _crops((test["Query"]["idname"], test["Query"]) for test in tests)
        crops["gallery"] = _crops(
            (test["Query"]["idname"], appearance)
            for test in tests
            for appearance in _listed(test["Gallery"])
            if np.size(appearance["idlocate"])
        )
        return crops
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, AttributeError) as error:
        raise InputError(f"{file}: is not the annotation of CUHK-SYSU ({error!r}); download it again") from None


def _crops(boxes: Iterable[tuple[str, dict[str, Any]]]) -> list[Crop]:
    crops = []
    for number, (name, box) in enumerate(boxes):
        left, top, width, height = (int(value) for value in np.ravel(box["idlocate"]))
        scene, hard = str(box["imname"]), int(np.ravel(box["ishard"])[0])
        file = f"{int(name.removeprefix('p')):05d}_{Path(scene).stem}_{number:07d}_{hard}.jpg"
        crops.append(Crop(scene, (left, top, left + width, top + height), file))
    return crops


def _write_crops(crops: Sequence[Crop], scenes: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    missing = [crop for crop in crops if not (folder / crop.file).exists()]
    with tqdm(total=len(crops), initial=len(crops) - len(missing), desc=folder.name, disable=None) as progress:
        for scene, in_scene in groupby(sorted(missing), key=lambda crop: crop.scene):
            damage = naming_damage(scenes / scene, "cannot be read", "unpack the archive again", "scene")
            with damage, Image.open(scenes / scene, formats=FORMATS) as opened:
                image = opened.convert("RGB")
            for crop in in_scene:
                write_image(folder / crop.file, image.crop(crop.box), "JPEG")
                progress.update()


def _listed(value: Any) -> list[Any]:
    """Return a value from a MATLAB file as a list; for a list of one element, SciPy may return the element."""
    return [value] if isinstance(value, dict) else list(value)


_ALL = Spec(
    name="cuhk_sysu",
    read=read,
    title="CUHK-SYSU",
    source="https://www.ee.cuhk.edu.hk/~xgwang/PS/dataset.html",
    on_request=True,
    licence="research only",
    layout=Layout((*(f"{home}/{CROPS}" for home in HOMES), CROPS), SPLITS),
    conversion=Conversion(
        convert, Layout(HOMES, (SCENES,), (f"{ANNOTATION}/Train.mat", f"{ANNOTATION}/TestG50.mat")), ()
    ),
    cameras=False,
    published=published(train=(5532, 15080), query=(2900, 2900), gallery=(2900, None)),
)
_SUB = replace(
    _ALL,
    name="cuhk_sysu_sub",
    read=partial(read, min_images=4),
    published=published(query=(2900, 2900), gallery=(2900, None)),
    remark="training people have 4 images or more",
)
SPECS = (_ALL, _SUB)
