"""Choose the test split of custom images, which a folder or a table lists without splits."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path, PurePath

from lreid.data.datasets import Scheme, Sources
from lreid.data.listing import (
    LIST,
    SPLIT_FOLDERS,
    Listed,
    Pattern,
    data_set_of,
    image_files,
    listed_by_folder,
    listed_by_name,
    listed_by_pattern,
    named_as_market,
    suggested,
)
from lreid.data.records import CameraPolicy, DataSet, grouped
from lreid.data.tables import read_table
from lreid.errors import InputError, counted
from lreid.utils.identities import ascending_ranks, warn_of_spellings

PREFIX = "own:"
TESTED = 1 / 4  # approximate share of the identities that become test identities
FEWEST = 2  # minimum number of identities for training, and for testing


class TooFew(InputError):
    """There are too few images per identity for training; ``gallery`` is a data set with all images in its gallery."""

    def __init__(self, message: str, gallery: DataSet) -> None:
        super().__init__(message)
        self.gallery = gallery


@dataclass(frozen=True)
class CustomSet:
    """A data set of custom images, whose labels come from their paths or from a list.

    Attributes:
        data_set: the images. The splits ``query`` and ``gallery`` are empty if there are too few identities for a test.
        cameras: names of the cameras; empty if cameras are unknown, or if a single camera saw most identities.
        notes: remarks for the user, such as the number of skipped images.
    """

    data_set: DataSet
    cameras: tuple[str, ...]
    notes: tuple[str, ...]


def source_of(path: Path, root: Path | None = None) -> str:
    """Return the value for ``BENCHMARK.TRAIN``: ``csv:FILE`` for a CSV file with splits, otherwise ``own:PATH``.

    Raises:
        InputError: the path does not exist, or the CSV file cannot be read.
    """
    if path.is_dir():
        file = path / LIST
        return source_of(file, root) if file.is_file() else f"{PREFIX}{path.absolute()}"
    if not path.exists():
        raise InputError(f"{path}: no such folder or CSV file; check the path")
    has_splits = any(image.split for image in read_table(path, splits=False, root=root))
    return f"{'csv:' if has_splits else PREFIX}{path.absolute()}"


def title_of(path: Path) -> str:
    """Make a title of one printable line from the name of a folder or file, for tables, pages and folder names."""
    path = path.resolve()
    if path.is_dir() and path.name in SPLIT_FOLDERS and path.parent.name:  # my/train is named after my
        path = path.parent
    name = path.name if path.is_dir() else path.stem
    return "".join(each if each.isprintable() else "_" for each in name) or "own"


def read_custom(path: Path, sources: Sources = Sources()) -> list[CustomSet]:  # noqa: B008 (frozen)
    """Read identities and cameras of custom images, and choose test identities by :func:`splits_of`.

    For a CSV file without a column ``split``, the columns ``pid`` and ``camid`` give the labels
    (:mod:`lreid.data.tables`). For a folder, the paths give the labels (:func:`lreid.data.listing.list_labelled`).
    Cameras are used only if every image has a camera.

    Args:
        path: a folder or a CSV file.
        sources: settings for reading. The attribute ``pattern`` applies to paths in a folder, ``root`` to paths in a
            CSV file, and ``cameras`` to images without a known camera.

    Returns:
        Custom sets: one per domain of a CSV file, or a single one for a folder.

    Raises:
        TooFew: fewer than two identities have two images or more.
        InputError: there are no images, or the folders are not named after identities.
    """
    if path.is_dir():
        return [_custom_set(path, title_of(path), *_of_folder(path, sources.pattern), sources.cameras)]
    domains = grouped(read_table(path, splits=False, root=Path(sources.root)), attrgetter("domain"))
    return [_custom_set(path, domain, sorted(images), [], sources.cameras) for domain, images in domains.items()]


def splits_of(images: Sequence[Listed]) -> list[str]:
    """Assign each image to a split: ``train``, ``query`` or ``gallery``.

    About a quarter of the identities become test identities: those whose names have the smallest hashes. Because the
    hash of a name does not depend on other names, a training identity does not become a test identity when the folder
    grows. There are at least two test identities, but at most half of the identities with several images. If fewer than
    four identities have several images, there are no test identities.

    If cameras are known (:func:`cameras_of`), only identities that several cameras saw become test identities. If a
    camera took several images of a test identity, the first image is a query. The first image of a test identity is its
    only query if cameras are unknown, or if no camera took several images of it. All other images of test identities
    form the gallery, together with the images of identities that have a single image.

    Args:
        images: images in a stable order, for example sorted by path. Images without identity are distractors.
    """
    by_identity = grouped((image for image in images if image.identity is not None), attrgetter("identity"))
    has_cameras = bool(cameras_of(images))
    several = {name: group for name, group in by_identity.items() if len(group) > 1}
    candidates = sorted(
        (name for name, group in several.items() if not has_cameras or len({image.camera for image in group}) > 1),
        key=_share,
    )
    number = sum(_share(name) < TESTED for name in candidates)
    number = min(max(number, FEWEST), len(several) // 2)
    tested = set(candidates[:number]) if number >= FEWEST else set()
    queries = {image.path for name in tested for image in _queries(several[name], has_cameras)}

    def split(image: Listed) -> str:
        if image.path in queries:
            return "query"
        held_back = image.identity in tested or image.identity not in several
        return "gallery" if tested and held_back else "train"

    return [split(image) for image in images]


def cameras_of(images: Sequence[Listed]) -> list[str]:
    """List the camera names in ascending order; empty if an image has no camera or one camera saw most identities."""
    cameras = [image.camera for image in images if image.camera is not None]
    by_identity = grouped((image for image in images if image.identity is not None), attrgetter("identity"))
    several = [group for group in by_identity.values() if len(group) > 1]
    by_two = sum(len({image.camera for image in group}) > 1 for group in several)
    if len(cameras) < len(images) or by_two < FEWEST or 2 * by_two < len(several):
        return []
    return list(ascending_ranks(cameras))


def _share(name: str) -> float:
    """Hash a name to a number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:6], "big") / 2**48


def _queries(images: Sequence[Listed], has_cameras: bool) -> list[Listed]:
    """Choose the queries among the images of one test identity, see :func:`splits_of`."""
    by_camera = grouped(images, lambda image: image.camera if has_cameras else None)
    return [group[0] for group in by_camera.values() if len(group) > 1] or [images[0]]


def _of_folder(folder: Path, pattern: str = "") -> tuple[list[Listed], list[str]]:
    """List the images of a folder with labels from their paths; also return notes on skipped files."""
    files = image_files(folder)
    if not pattern and named_as_market(files):
        return listed_by_name(files), []
    listed = listed_by_pattern(folder, files, Pattern(pattern)) if pattern else listed_by_folder(folder, files)
    images = [image for image in listed if image.identity is not None]
    nameless = (Path(image.path).parent for image in listed if image.identity is None)
    if inner := next((parent for parent in nameless if parent != folder), None):
        raise InputError(
            f"{folder}: its folders are named after cameras, and none after the people in the images; put the images "
            f"of each person into a separate folder, such as {inner / 'anna'}"
        )
    if not images:
        raise InputError(
            f"{folder}: no path names the person in its {len(listed)} images; use one folder per person, or "
            + _reading(folder, [image.path for image in listed])
        )
    stray = len(listed) - len(images)
    return images, [f"{counted(stray, 'image')} outside the folders of the identities left out"] * (stray > 0)


def _custom_set(
    path: Path, name: str, images: Sequence[Listed], notes: Sequence[str], policy: CameraPolicy
) -> CustomSet:
    numbers = Counter(image.identity for image in images if image.identity is not None)
    warn_of_spellings(numbers, f"{path}: identities")
    several, notes = sum(count > 1 for count in numbers.values()), list(notes)
    fault = ""
    if len(numbers) < 2:
        only = next(iter(numbers), "none")
        fault = f"has images of only one identity ({only}); training needs two or more; add images of others"
    elif several < FEWEST:
        fault = (
            f"{counted(len(numbers), 'identity')}, {several} of them with two images or more; training needs several "
            "images of the same identity, so add some"
        )
    cameras, splits = cameras_of(images), ["gallery"] * len(images) if fault else splits_of(images)
    if not cameras:
        notes.append(_without_cameras(path, images))
    if "query" not in splits:
        notes.append("too few identities to hold some out for a test, so there will be no figures")
    if single := len(numbers) - several:
        use = "of use as distractors only" if "query" in splits else "of little use in training"
        notes.append(f"{counted(single, 'identity')} with a single image, {use}")
    images = [image._replace(split=split) for image, split in zip(images, splits, strict=True)]
    data_set = data_set_of(name, images, policy, has_cameras=bool(cameras))
    if fault:
        raise TooFew(f"{path}: {fault}; lreid test and lreid search can use these", data_set)
    return CustomSet(data_set, tuple(cameras), tuple(notes))


def _reading(folder: Path, paths: Sequence[str]) -> str:
    """Suggest a ``--pattern`` for an error message: a common pattern that fits the paths, or else an example."""
    if text := suggested([PurePath(path).relative_to(folder) for path in paths]):
        return f'try --pattern "{text}", which fits the paths (lreid data check --pattern shows what it reads)'
    return 'pass a pattern such as --pattern "{pid}/{camid}_{n}.png"'


def _without_cameras(folder: Path, images: Sequence[Listed]) -> str:
    """Explain in a note why the cameras are not used, see :func:`cameras_of`."""
    unlabelled = [image.path for image in images if image.camera is None]
    if len(unlabelled) == len(images):
        if not folder.is_dir():
            return "no row has a camera; add a column camid"
        return f"no path contains a camera; {_reading(folder, unlabelled)}"
    if unlabelled:
        number = counted(len(unlabelled), "image")
        return f"cameras are not used, because {number} have none in their path or row, such as {unlabelled[0]}"
    return "cameras are not used, because most identities were seen by one camera only"


def _load_named(path: str, sources: Sources, split: int) -> list[DataSet]:
    return [own.data_set for own in read_custom(sources.existing(path, "folder or CSV file"), sources)]


SCHEME = Scheme(_load_named)
