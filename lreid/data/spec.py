"""The specification of a data set: its names, folders, splits, published counts and licence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lreid.data.records import SPLITS, CameraPolicy, DataSet, NotThere
from lreid.errors import InputError
from lreid.utils.files import describe_folder

Counts = Mapping[str, int]  # by the names in COLUMNS
KINDS = ("identities", "images")
COLUMNS = (*(f"{split} {kind}" for split in SPLITS for kind in KINDS), "cameras")


def published(cameras: int | None = None, **splits: tuple[int | None, int | None]) -> Counts:
    """Collect published counts under the names in :data:`COLUMNS`.

    Args:
        cameras: number of cameras in the whole data set.
        splits: identities and images of ``train``, ``query`` and ``gallery``, or None for counts that are not
            published. If a data set has several random splits, the published counts refer to a single split. All
            distractors together count as one identity.
    """
    numbers = {f"{split} {kind}": n for split, pair in splits.items() for kind, n in zip(KINDS, pair, strict=True)}
    return {column: count for column, count in {**numbers, "cameras": cameras}.items() if count is not None}


def require_images(data_set: DataSet, split: str, source: Path) -> None:
    """Raise InputError if a split of a data set is empty; ``source`` is its folder or file, for the message."""
    if not getattr(data_set, split):
        content = f"; {describe_folder(source)}" if source.is_dir() else ""
        raise InputError(f"{source}: no images for the {split} split of {data_set.name}{content}; add some")


@dataclass(frozen=True)
class Layout:
    """The possible folders of a data set, and the content that such a folder must have.

    Attributes:
        homes: possible folders of the data set, relative to the folder of all data sets, preferred ones first.
        folders, files: folders and files that the folder of the data set must contain.
    """

    homes: Sequence[str]
    folders: Sequence[str] = ()
    files: Sequence[str] = ()

    def places(self, root: Path) -> list[Path]:
        """List all possible folders of the data set."""
        return [root / home for home in self.homes]

    def lacking(self, root: Path) -> dict[Path, list[str]]:
        """List the files and folders that each existing folder of the data set lacks."""
        return {
            home: [f"{name}/" for name in self.folders if not (home / name).is_dir()]
            + [name for name in self.files if not (home / name).is_file()]
            for home in self.places(root)
            if home.is_dir()
        }


@dataclass(frozen=True)
class Conversion:
    """The conversion of a release that lreid cannot read directly.

    Attributes:
        convert: function that writes the images; its argument is the folder of the release.
        release: possible folders of the release, and the content that they must have.
        makes: names of the files and folders that ``convert`` writes, as in :meth:`Layout.lacking`.
    """

    convert: Callable[[Path], None]
    release: Layout
    makes: Sequence[str]

    def released(self, root: Path) -> Path | None:
        """Return the first folder that contains at least a part of the release, or None."""
        whole = len(self.release.folders) + len(self.release.files)
        return next((home for home, missing in self.release.lacking(root).items() if len(missing) < whole), None)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The specification of a data set, or of one variant of it.

    Attributes:
        name: name of the data set, as in ``BENCHMARK.TRAIN``.
        read: function that reads the data set from its folder. If the data set has several splits, this function also
            receives ``split`` (from 0) and the ``seed`` of random splits. If file names contain no cameras, it also
            receives ``cameras``. The function raises InputError if a file name or list is faulty.
        title: name of the data set in texts.
        source: address of the authors' page.
        on_request: whether the authors give the data set only on request.
        licence: short form of the licence that the authors' page or agreement states.
        layout: folders and files of the data set.
        folder: folder for the archives of the data set, relative to the folder of all data sets; by default, the first
            part of the first possible folder of the data set.
        conversion: conversion of the release to images, or None if the release contains readable images.
        unpack_frames: function that unpacks the archives into a folder, with a given number of frames per tracklet;
            with None, whole archives are unpacked.
        splits: number of random splits over which figures are averaged.
        cameras: whether file names contain cameras.
        renumbered: whether test identities are numbered from 0 again, so that a number means different people in the
            training list and in the test lists.
        published: published counts of identities, images and cameras. With published counts, every split must have
            images unless its count is 0.
        remark: remark for the table of all data sets.
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

    def __post_init__(self) -> None:
        if not self.folder:
            object.__setattr__(self, "folder", self.layout.homes[0].partition("/")[0])

    def load(self, root: str | Path, *, split: int = 0, seed: int = 0, cameras: CameraPolicy = "apart") -> DataSet:
        """Read the data set.

        Args:
            split: number of the split, from 0, for data sets with several splits.
            cameras: rule for camera numbers if file names contain no cameras, see
                :func:`lreid.data.records.cameras_of_test`.

        Raises:
            NotThere: the data set has no folder in ``root``.
            InputError: the folder lacks a file or folder or has a different layout, a file name is unexpected, or a
                split is empty, although its published count is not 0.
        """
        home = self.home(Path(root))
        data_set = self._read(home, split, seed, cameras)
        for each in SPLITS:
            if self.published and any(self.published.get(f"{each} {kind}", 1) for kind in KINDS):
                require_images(data_set, each, home)
        return data_set

    def load_training(
        self, root: str | Path, *, split: int = 0, seed: int = 0, cameras: CameraPolicy = "apart"
    ) -> DataSet:
        """Read the data set for its training split alone: folders of its test splits may be missing.

        Raises:
            InputError: as in :meth:`load`, about the training split.
        """
        lacking = self.layout.lacking(Path(root))
        home = min(lacking, key=lambda each: len(lacking[each])) if lacking else self.home(Path(root))
        try:
            data_set = self._read(home, split, seed, cameras)
        except OSError:
            self.home(Path(root))  # names what the folder lacks
            raise
        if not data_set.train:
            self.home(Path(root))
        return data_set

    def _read(self, home: Path, split: int, seed: int, cameras: CameraPolicy) -> DataSet:
        options: dict[str, Any] = {"split": split, "seed": seed} if self.splits > 1 else {}
        if not self.cameras:
            options["cameras"] = cameras
        data_set = self.read(home, **options)
        for pid, path in ((each.pid, each.path) for kind in SPLITS for each in getattr(data_set, kind)):
            if isinstance(pid, str):
                raise InputError(f"{self.title}: {path} has the identity {pid!r}; number the identities from 0")
        return data_set

    def home(self, root: Path) -> Path:
        """Return the first folder of the data set that contains everything that the layout requires.

        Raises:
            NotThere: no folder of the data set exists.
            InputError: a folder exists but lacks files, or the release has not been converted to images yet.
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
                f"there{f' (it contains {holds})' * bool(holds)}; {describe_folder(root)}"
            )
        home, missing = next(iter(lacking.items()))
        if self.conversion and set(missing) & set(self.conversion.makes):
            remedy = f"put {' and '.join([*self.conversion.release.folders, *self.conversion.release.files])} there "
            remedy += f"and run: {command}"
        else:
            remedy = "unpack the archive there unchanged"
        raise InputError(f"{self.title}: {home} lacks {', '.join(missing)}; {describe_folder(home)}; {remedy}")
