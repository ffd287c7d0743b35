"""Image folders for class-incremental learning: ``train/CLASS/*.png`` and ``test/CLASS/*.png``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tqdm import trange

from lreid.data.datasets import Scheme
from lreid.data.images import SUFFIXES, write_image
from lreid.data.listing import visible_images
from lreid.data.records import CameraPolicy, DataSet, Names, Record, cameras_of_test
from lreid.errors import InputError
from lreid.utils.files import describe_folder, folder_at_once, list_folder, only_one_process
from lreid.utils.identities import ascending_ranks, label_text
from lreid.utils.reading import escaped, naming_damage

Classes = Mapping[str, Sequence[Path]]  # the images of every class
LEAST = {"train": 1, "test": 2}  # images per class; a test needs a query and a gallery image


def load(home: Path, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Load a folder of classes; CIFAR-10 and other archives are unpacked to such folders.

    ``home`` contains ``train`` and ``test``, each with one folder per class. Hidden files and files of other types are
    ignored. For the split into queries and gallery, see :func:`of_classes`.

    Raises:
        InputError: ``train`` or ``test`` is missing or has no classes, or :func:`of_classes` raises an error.
    """
    train, test = (_images(home / split) for split in LEAST)
    return of_classes(escaped(home.resolve().name), home, train, test, cameras=cameras)


def of_classes(name: str, home: Path, train: Classes, test: Classes, *, cameras: CameraPolicy = "apart") -> DataSet:
    """Create a data set of classes, each with training images and other test images.

    A benchmark with this data set measures classification accuracy (``EVAL.ACCURACY``) and retrieval of *trained*
    classes. For retrieval, every second test image of a class, beginning with the first by name, is a query; the others
    are the gallery. Classes are numbered ``0, 1, …`` in ascending order of their names. If all names are integers, they
    are sorted as numbers.

    Args:
        name, home: name and folder of the data set, for error messages.
        train, test: images of every class, sorted by name.
        cameras: rule for the cameras of queries and gallery, see :func:`cameras_of_test`.

    Raises:
        InputError: a class is in only one split, or has no training image or fewer than two test images.
    """
    files = {"train": train, "test": test}
    for label in {**train, **test}:
        for split, least in LEAST.items():
            if (number := len(files[split].get(label, ()))) < least:
                raise InputError(
                    f"{home}: class {label} has {number} of {least} required images in {split} ({' '.join(SUFFIXES)})"
                )
    pids = ascending_ranks(train)
    camid = cameras_of_test(cameras)

    def records(split: str, camera: int, chosen: slice) -> tuple[Record, ...]:
        return tuple(
            Record(str(path), pid, camera) for label, pid in pids.items() for path in files[split][label][chosen]
        )

    query = records("test", camid["query"], slice(0, None, 2))
    gallery = records("test", camid["gallery"], slice(1, None, 2))
    return DataSet(
        name,
        records("train", camid["train"], slice(None)),
        query,
        gallery,
        held_out=tuple(sorted((*query, *gallery))),
        classes=tuple(sorted(pids, key=pids.__getitem__)),
        names=Names({pid: label for label, pid in pids.items()}),
        has_cameras=False,
    )


def read_by_torchvision(
    name: str,
    home: Path,
    split_of: Callable[[ModuleType, str], Any],
    class_of: Callable[[Any, int], str],
    *,
    cameras: CameraPolicy = "apart",
) -> DataSet:
    """Load a data set that torchvision reads, after unpacking its images to PNG files in ``home/images``.

    The images are unpacked to a temporary folder, which is renamed when it is complete, so that an interrupted run
    leaves no incomplete folder. If several runs start together, one of them unpacks the archives while the others wait.

    Args:
        name, home: name of the data set, and folder of its files.
        split_of: function that opens the split ``train`` or ``test`` as a data set of :mod:`torchvision.datasets`, its
            first argument, without a download.
        class_of: function that returns the name of the class of a label in a split.
        cameras: see :func:`of_classes`.

    Raises:
        InputError: files are missing or damaged, the folder cannot be written to, or :func:`of_classes` raises an
            error.
    """
    folder = home / "images"
    if not folder.is_dir():
        from torchvision import datasets  # only the first run with a data set needs it

        advice = f"{describe_folder(home)}; unpack the archive again"
        try:
            with only_one_process(home), folder_at_once(folder) as unfinished:
                if unfinished is not None:
                    for split in LEAST:
                        with naming_damage(home, f"files of {name} are missing or damaged", advice):
                            images = split_of(datasets, split)
                        _unpack(unfinished / split, images, class_of)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error}); images are unpacked there once: free some space, or copy the "
                "archives to a folder that you can write to"
            ) from None
    return replace(load(folder, cameras=cameras), name=name)


def _unpack(folder: Path, images: Any, class_of: Callable[[Any, int], str]) -> None:
    """Write the images of a split to ``CLASS/NUMBER.png``."""
    for number in trange(len(images), desc=f"unpack into {folder}", unit="image", disable=None):
        image, label = images[number]
        write_image(folder / class_of(images, label) / f"{number:06d}.png", image, "PNG")


def _images(folder: Path) -> dict[str, list[Path]]:
    """List the images of every class in a folder, sorted by name."""
    classes = [each for each in list_folder(folder, "[!.]*") if each.is_dir()]
    if not classes:
        raise InputError(
            f"{folder}: has no folders of classes; {describe_folder(folder.parent)}; use train/CLASS and test/CLASS"
        )
    images: dict[str, list[Path]] = {}
    for each in classes:
        images.setdefault(label_text(escaped(each.name)), []).extend(visible_images(each))
    return images


SCHEME = Scheme(lambda path, sources, split: [load(sources.existing(path, "folder"), cameras=sources.cameras)])
