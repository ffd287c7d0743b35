"""The specification of a data set: names, folders, splits, published counts and licence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lreid.data.layout import describe_folder
from lreid.data.records import CameraPolicy, DataSet
from lreid.errors import InputError

Counts = Mapping[str, int]  # by the names in COLUMNS
SPLITS = ("train", "query", "gallery")
KINDS = ("identities", "images")
COLUMNS = (*(f"{split} {kind}" for split in SPLITS for kind in KINDS), "cameras")


def published(cameras: int | None = None, **splits: tuple[int | None, int | None]) -> Counts:
    """Published counts, by the names in :data:`COLUMNS`.

    Args:
        cameras: number of cameras in all splits together.
        splits: identities and images of ``train``, ``query`` and ``gallery``; None for a count that is not published.
            If a data set has several random splits, the counts are those of one. Distractors count as one identity.
    """
    numbers = {f"{split} {kind}": n for split, pair in splits.items() for kind, n in zip(KINDS, pair, strict=True)}
    return {column: count for column, count in {**numbers, "cameras": cameras}.items() if count is not None}


class NotThere(InputError):
    """No folder of the data set exists.

    Attributes:
        places: the folders where the data set may be, preferred ones first.
    """

    def __init__(self, message: str, places: Sequence[Path]) -> None:
        super().__init__(message)
        self.places = tuple(places)


@dataclass(frozen=True)
class Layout:
    """Folders where a data set may be, and what such a folder must contain.

    Attributes:
        homes: folders where the data set may be, relative to the folder of all data sets; preferred ones first.
        folders, files: folders and files that its home must contain.
    """

    homes: Sequence[str]
    folders: Sequence[str] = ()
    files: Sequence[str] = ()

    def places(self, root: Path) -> list[Path]:
        """All homes, whether they exist or not."""
        return [root / home for home in self.homes]

    def lacking(self, root: Path) -> dict[Path, list[str]]:
        """The missing files and folders of each home that exists."""
        return {
            home: [f"{name}/" for name in self.folders if not (home / name).is_dir()]
            + [name for name in self.files if not (home / name).is_file()]
            for home in self.places(root)
            if home.is_dir()
        }


@dataclass(frozen=True)
class Conversion:
    """How to convert a release that cannot be read directly.

    Attributes:
        convert: function that writes the images; its argument is the home of the release.
        release: folders where the release may be, and what they must contain.
        makes: files and folders that ``convert`` writes, with names as in :meth:`Layout.lacking`.
    """

    convert: Callable[[Path], None]
    release: Layout
    makes: Sequence[str]

    def released(self, root: Path) -> Path | None:
        """The home that contains at least a part of the release; None if there is none."""
        whole = len(self.release.folders) + len(self.release.files)
        return next((home for home, missing in self.release.lacking(root).items() if len(missing) < whole), None)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The specification of a data set, or of one of its variants.

    Attributes:
        name: name as in ``BENCHMARK.TRAIN``.
        read: function that reads the data set from its folder. If there are several splits, it also receives ``split``
            (from 0) and the ``seed`` of random splits; if file names contain no cameras, ``cameras``. The function
            raises InputError if a name or list is faulty, or a split is empty.
        title: name of the data set in texts.
        source: address of the authors' page.
        on_request: whether the authors give the data set only on request.
        licence: the licence on the authors' page or in their agreement, in a few words.
        layout: folders and files of the data set.
        folder: folder for its archives, relative to the folder of all data sets.
        conversion: conversion from the release to images, if it needs one.
        unpack_frames: function that unpacks the archives into a folder, with a given number of frames per tracklet;
            None unpacks whole archives.
        splits: number of random splits over which figures are averaged.
        cameras: whether file names contain cameras.
        renumbered: whether test identities are numbered from 0 again, so that they share numbers with training ones.
        published: published counts of identities, images and cameras.
        remark: text for the table of all data sets.
    """

    name: str
    read: Callable[..., DataSet]
    title: str
    source: str = ""
    on_request: bool = False
    licence: str = "none stated"
    layout: Layout
    folder: str = ""
    conversion: Conversion | None = None
    unpack_frames: Callable[[Sequence[Path], Path, int], None] | None = None
    splits: int = 1
    cameras: bool = True
    renumbered: bool = False
    published: Counts = field(default_factory=dict)
    remark: str = ""

    def load(self, root: str | Path, *, split: int = 0, seed: int = 0, cameras: CameraPolicy = "apart") -> DataSet:
        """Read the data set.

        Args:
            root: folder of all data sets.
            split: number of the split, from 0, if there are several.
            seed: seed of random splits.
            cameras: which camera numbers queries and gallery get if file names contain none, see
                :func:`lreid.data.layout.cameras_of_test`.

        Raises:
            NotThere: the data set has no folder in ``root``.
            InputError: its folder lacks something or has another layout, a name is unexpected, or a split is empty.
        """
        options: dict[str, Any] = {"split": split, "seed": seed} if self.splits > 1 else {}
        if not self.cameras:
            options["cameras"] = cameras
        return self.read(self.home(Path(root)), **options)

    def home(self, root: Path) -> Path:
        """The first home that contains everything that the layout requires.

        Raises:
            NotThere: no home exists.
            InputError: a home exists but lacks something, or the release has not been converted to images yet.
        """
        lacking = self.layout.lacking(root)
        for home, missing in lacking.items():
            if not missing:
                return home
        command = f"lreid data prepare {self.name} --root {root}"
        released = self.conversion.released(root) if self.conversion else None
        if not lacking and released:
            raise InputError(f"{self.title}: the images in {released} are not prepared; run: {command}")
        if not lacking:
            places = self.layout.places(root)
            authors = f"from its authors ({self.source}{', on request' * self.on_request}) " if self.source else ""
            holds = ", ".join([*(f"{name}/" for name in self.layout.folders), *self.layout.files])
            raise NotThere(
                f"{self.title}: no folder {' or '.join(map(str, places))}; "
                f"download the data set {authors}and unpack it "
                f"there{f' (it contains {holds})' * bool(holds)}; {describe_folder(root)}",
                places,
            )
        home, missing = next(iter(lacking.items()))
        if self.conversion and set(missing) & set(self.conversion.makes):
            remedy = f"put {' and '.join([*self.conversion.release.folders, *self.conversion.release.files])} there "
            remedy += f"and run: {command}"
        else:
            remedy = "unpack the archive there unchanged"
        raise InputError(f"{self.title}: {home} lacks {', '.join(missing)}; {describe_folder(home)}; {remedy}")
