"""mini-ImageNet (Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016).

    datasets/mini-imagenet/                      or  datasets/mini-imagenet/
    ├── images/    n0153282900000005.jpg …           ├── n01532829/    *.jpg …
    ├── train.csv                                    └── …
    ├── val.csv
    └── test.csv                                 filename,label: n0153282900000005.jpg,n01532829

The data set is for classification: 100 classes of objects with 600 images per class. The usual lists (Ravi and
Larochelle, ICLR 2017) divide the *classes* into 64, 16 and 20, for few-shot learning. A class-incremental benchmark
trains on all 100 classes and tests the same classes on other images. lreid therefore joins the lists, and sorts the
images of each class by name. As in the official code of ER-ACE, the first 100 are test images, and the other 500 are
training images. One folder per class is supported too, either directly in `mini-imagenet/` or in its
`train/`, `val/` and `test/`. The order of the classes in training is the order of their names.
"""

from operator import itemgetter
from pathlib import Path

from lreid.classification.image_folder import of_classes
from lreid.data.layout import read_lines
from lreid.data.listing import visible_images
from lreid.data.records import CameraPolicy, DataSet, grouped
from lreid.data.spec import Layout, Spec, published
from lreid.utils.files import list_folder

PARTS = ("train", "val", "test")
TESTED = 6  # one of this many images is a test image


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read mini-ImageNet from the CSV lists if they exist, otherwise from one folder per class."""
    lists = [home / f"{part}.csv" for part in PARTS if (home / f"{part}.csv").is_file()]
    classes = _listed(home, lists) if lists else _in_folders(home)
    train, test = {}, {}
    for label, files in classes.items():
        tested = max(2, len(files) // TESTED)
        train[label], test[label] = files[tested:], files[:tested]
    return of_classes("mini_imagenet", home, train, test, cameras=cameras)


def _listed(home: Path, lists: list[Path]) -> dict[str, list[Path]]:
    example = "n0153282900000005.jpg,n01532829"
    lines = [line for file in lists for line in read_lines(file, r"([\w.-]+\.\w+),([\w.-]+)", example, first=2)]
    classes = grouped(lines, itemgetter(2))
    return {label: sorted({home / "images" / line[1] for line in images}) for label, images in classes.items()}


def _in_folders(home: Path) -> dict[str, list[Path]]:
    parts = [home / part for part in PARTS if (home / part).is_dir()] or [home]
    folders = [folder for part in parts for folder in list_folder(part, "[!.]*") if folder.is_dir()]
    return grouped((image for folder in folders for image in visible_images(folder)), lambda image: image.parent.name)


SPECS = (
    Spec(
        name="mini_imagenet",
        read=read,
        title="mini-ImageNet",
        source="https://github.com/twitter-research/meta-learning-lstm",
        licence="that of ImageNet: research, non-commercial",
        layout=Layout(("mini-imagenet", "mini_imagenet", "miniImagenet")),
        cameras=False,
        published=published(train=(100, 50000), query=(100, 5000), gallery=(100, 5000)),
        remark="classes",
    ),
)
