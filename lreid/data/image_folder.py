"""Images of classes for class-incremental learning: ``train/CLASS/*.png`` and ``test/CLASS/*.png``."""

from __future__ import annotations

from pathlib import Path

from lreid.data.csv_dataset import ascending_ranks
from lreid.data.layout import SUFFIXES, CameraPolicy, cameras_of_test, describe_folder, visible_images
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

LEAST = {"train": 1, "test": 2}  # images of a class; to test, a query and a gallery image


def load(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Loads a folder of classes, as CIFAR-10 and others are unpacked for training classifiers.

    Every class is trained on and tested on, by other images. So the accuracy of classification can be measured
    (``EVAL.ACCURACY``), and retrieval says how well images of *learned* classes are found: of the test images of a
    class, in the order of their names, the first, third … are queries and the others the gallery.

    Classes become ``0, 1, …`` in ascending order of their names: as numbers where all are integers, else as text.

    Args:
        home: the folder that holds ``train`` and ``test``, which hold a folder a class; its name is that of the data
            set. Hidden folders and files, files of other types and folders in those of the classes are passed over.
        cameras: of queries and gallery, since there are none, see :func:`cameras_of_test`.

    Returns:
        The data set, of which ``held_out`` are all test images.

    Raises:
        InputError: one of the two folders is missing or holds no class, a class is in one of them only, or has no
            training image or less than two test images.
    """
    missing = [f"{split}/" for split in LEAST if not (home / split).is_dir()]
    if missing:
        raise InputError(
            f"{home}: lacks {', '.join(missing)}; {describe_folder(home)}; put the images into train/CLASS and "
            "test/CLASS"
        )
    files = {split: _images(home / split, least) for split, least in LEAST.items()}
    for split, other in (("train", "test"), ("test", "train")):
        alone = sorted(files[split].keys() - files[other].keys())
        if alone:
            raise InputError(
                f"{home}: class {alone[0]} is in {split}, but not in {other}; every class needs images in both"
            )
    pids = ascending_ranks(files["train"])
    query_camera, gallery_camera = cameras_of_test(cameras)

    def records(split: str, camera: int, chosen: slice) -> tuple[Record, ...]:
        return tuple(
            Record(str(path), pid, camera) for name, pid in pids.items() for path in files[split][name][chosen]
        )

    query = records("test", query_camera, slice(0, None, 2))
    gallery = records("test", gallery_camera, slice(1, None, 2))
    return DataSet(
        home.resolve().name,
        records("train", query_camera, slice(None)),
        query,
        gallery,
        held_out=tuple(sorted((*query, *gallery))),
    )


def _images(folder: Path, least: int) -> dict[str, list[Path]]:
    """The images of every class in a folder, sorted by name."""
    classes = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not classes:
        raise InputError(f"{folder}: holds no folder; put the images of each class into one")
    files = {each.name: visible_images(each) for each in classes}
    for name, found in files.items():
        if len(found) < least:
            raise InputError(
                f"{folder / name}: a class needs {least} images or more ({' '.join(SUFFIXES)}) in {folder.name}, "
                f"found {len(found)}"
            )
    return files
