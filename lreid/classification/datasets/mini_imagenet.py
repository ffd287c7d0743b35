"""mini-ImageNet (Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016).

    datasets/mini-imagenet/                      or  datasets/mini-imagenet/
    ├── images/    n0153282900000005.jpg …           ├── n01532829/    *.jpg …
    ├── train.csv                                    └── …
    ├── val.csv
    └── test.csv                                 filename,label: n0153282900000005.jpg,n01532829

The data set is for classification: 100 classes of objects with 600 images per class. The usual lists (Ravi and
Larochelle, ICLR 2017) divide the *classes* into 64, 16 and 20, for few-shot learning. A class-incremental benchmark
trains on all 100 classes and tests the same classes on other images. lreid therefore joins the lists, and sorts the
images of each class by name. The first 500 are training images, and the last 100 are test images. ER-ACE's paper does
not say how it divides the images. One folder per class is supported too, either directly in `mini-imagenet/` or in its
`train/`, `val/` and `test/`. The order of the classes in training is the order of their names.
"""

from pathlib import Path

from lreid.classification.image_folder import of_classes
from lreid.data.layout import read_lines
from lreid.data.listing import describe_folder, visible_images
from lreid.data.records import CameraPolicy, DataSet
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError

PARTS = ("train", "val", "test")
TESTED = 6  # one of this many images is a test image


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read mini-ImageNet from the CSV lists if they exist, otherwise from one folder per class."""
    lists = [home / f"{part}.csv" for part in PARTS if (home / f"{part}.csv").is_file()]
    classes = _listed(home, lists) if lists else _in_folders(home)
    if not classes:
        raise InputError(f"{home}: holds neither {PARTS[0]}.csv nor folders of classes; {describe_folder(home)}")
    train, test = {}, {}
    for label, files in classes.items():
        cut = len(files) - max(2, len(files) // TESTED)
        train[label], test[label] = files[: max(cut, 0)], files[max(cut, 0) :]
    return of_classes("mini_imagenet", home, train, test, cameras=cameras)


def _listed(home: Path, lists: list[Path]) -> dict[str, list[Path]]:
    classes: dict[str, list[Path]] = {}
    for file in lists:
        for line in read_lines(file, r"([\w.-]+\.\w+),([\w.-]+)", "n0153282900000005.jpg,n01532829", first=2):
            classes.setdefault(line[2], []).append(home / "images" / line[1])
    return {label: sorted(set(files)) for label, files in classes.items()}


def _in_folders(home: Path) -> dict[str, list[Path]]:
    classes: dict[str, list[Path]] = {}
    for above in [home / part for part in PARTS if (home / part).is_dir()] or [home]:
        for folder in sorted(each for each in above.iterdir() if each.is_dir() and not each.name.startswith(".")):
            classes.setdefault(folder.name, []).extend(visible_images(folder))
    return classes


SPECS = (
    Spec(
        name="mini_imagenet",
        read=read,
        title="mini-ImageNet",
        source="https://github.com/twitter-research/meta-learning-lstm",
        licence="that of ImageNet: research, non-commercial",
        layout=Layout(("mini-imagenet", "mini_imagenet", "miniImagenet")),
        folder="mini-imagenet",
        cameras=False,
        published=published(train=(100, 50000), query=(100, 5000), gallery=(100, 5000)),
        remark="classes",
    ),
)
