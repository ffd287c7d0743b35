"""Tiny-ImageNet (Le and Yang, Tiny ImageNet Visual Recognition Challenge, CS 231N at Stanford, 2015).

    datasets/tiny-imagenet-200/
    ├── wnids.txt                                n01443537 …   (200 lines)
    ├── train/n01443537/images/                  n01443537_0.JPEG …   (500 images per class)
    └── val/
        ├── images/                              val_0.JPEG …   (10000 images)
        └── val_annotations.txt                  val_0.JPEG n03444034 0 32 44 62

The data set is for classification: 200 classes of objects, 64 x 64 pixels. The test images of the release have no
labels, so the images of `val/` are the test images, as usual. The order of the classes in training is the order of
their WordNet numbers.
"""

from operator import itemgetter
from pathlib import Path

from lreid.classification.image_folder import of_classes
from lreid.data.layout import read_lines
from lreid.data.listing import visible_images
from lreid.data.records import CameraPolicy, DataSet, grouped
from lreid.data.spec import Layout, Spec, published

ANNOTATIONS = "val/val_annotations.txt"


def read(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Read Tiny-ImageNet in its original layout."""
    folders = [folder for folder in sorted((home / "train").iterdir()) if (folder / "images").is_dir()]
    train = {folder.name: visible_images(folder / "images") for folder in folders}
    lines = read_lines(home / ANNOTATIONS, r"(\S+)\s+(\S+).*", "val_0.JPEG n03444034 0 32 44 62")
    classes = grouped(lines, itemgetter(2))
    test = {label: sorted(home / "val/images" / line[1] for line in images) for label, images in classes.items()}
    return of_classes("tiny_imagenet", home, train, test, cameras=cameras)


SPECS = (
    Spec(
        name="tiny_imagenet",
        read=read,
        title="Tiny-ImageNet",
        source="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
        licence="that of ImageNet: research, non-commercial",
        layout=Layout(
            ("tiny-imagenet-200", "tiny_imagenet/tiny-imagenet-200"),
            ("train", "val/images"),
            ("wnids.txt", ANNOTATIONS),
        ),
        folder="tiny_imagenet",
        cameras=False,
        published=published(train=(200, 100000), query=(200, 5000), gallery=(200, 5000)),
        remark="classes",
    ),
)
