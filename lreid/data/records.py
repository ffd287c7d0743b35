"""Records of images, and the data sets, tasks and benchmarks that consist of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from lreid.errors import InputError
from lreid.utils.identities import DISTRACTOR, UNKNOWN

SPLITS = ("train", "query", "gallery")
CameraPolicy = Literal["apart", "same"]  # see cameras_of_test
T = TypeVar("T")


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Group items by a key; the items of a group, and the groups by their first item, keep their order."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def cameras_of_test(policy: CameraPolicy) -> dict[str, int]:
    """Return camera numbers for the splits ``train``, ``query`` and ``gallery`` of data sets without cameras.

    With ``"apart"``, queries have camera 0 and gallery images have camera 1, as in PatchKD, so the camera filter leaves
    out no image. With ``"same"``, queries and gallery images both have camera 0, as in AKA's released code. With
    ``"same"``, the camera filter must be off, because it would leave out all matches.
    """
    return {"train": 0, "query": 0, "gallery": {"apart": 1, "same": 0}[policy]}


class Record(NamedTuple):
    """An image: its path, identity and camera.

    Attributes:
        path: an image file, or the address of an image without a file (see :mod:`lreid.data.datasets`).
        pid: identity, an integer. In a :class:`Task`, ``pid`` is a class label instead.
        camid: camera, an integer.
    """

    path: str
    pid: int
    camid: int

    @property
    def outfit(self) -> int:
        """Number of the outfit in the image, -1 if unknown. Only :class:`Frame` records can have an outfit."""
        return UNKNOWN

    @property
    def tracklet(self) -> int:
        """Number of the image's tracklet within its split, or -1 if it belongs to none."""
        return UNKNOWN


class Frame(Record):
    """An image of a tracklet: a record with outfit and tracklet, which still unpacks into path, identity and camera."""

    outfit = UNKNOWN
    tracklet = UNKNOWN

    def __new__(cls, path: str, pid: int, camid: int, outfit: int = UNKNOWN, tracklet: int = UNKNOWN) -> Frame:
        """Create a frame; outfit numbers are per identity, so two identities never share an outfit."""
        frame = super().__new__(cls, path, pid, camid)
        frame.outfit, frame.tracklet = outfit, tracklet
        return frame

    def _replace(self, **changes: Any) -> Frame:
        """Return a copy with a new path, identity or camera."""
        return Frame(*super()._replace(**changes), self.outfit, self.tracklet)


@dataclass(frozen=True)
class Names:
    """Names for the numbers of identities and cameras. A number without a name is displayed as the number."""

    identities: Mapping[int, str] = field(default_factory=dict)
    cameras: Mapping[int, str] = field(default_factory=dict)

    def identity(self, pid: int) -> str:
        """Return the name of an identity for display: ``car_0002``, or ``id 0002`` if the name is a number."""
        name = self.identities.get(pid, str(pid))
        return f"id {name}" if name.isdecimal() else name

    def camera(self, camid: int) -> str:
        """Return the name of a camera for display: ``cam north``, or ``cam 2`` if the name is a number."""
        return f"cam {self.cameras.get(camid, camid)}"

    def behind(self, other: Names, pid_offset: int, camid_offset: int) -> Names:
        """Append the names of a second data set, after adding offsets to its identity and camera numbers."""
        return Names(
            {**self.identities, **{pid + pid_offset: name for pid, name in other.identities.items()}},
            {**self.cameras, **{camid + camid_offset: name for camid, name in other.cameras.items()}},
        )


class NotThere(InputError):
    """Error: a data set was not found in any of its possible folders."""


@dataclass(frozen=True)
class DataSet:
    """A data set as loaded: lists of records, with the authors' numbers of identities and cameras.

    The split ``train`` is empty if the data set is only for testing. The fields ``tracks``, ``single_shot`` and
    ``tracklets`` have the same meaning as in :class:`QueryGallery`. For image classification, ``held_out`` lists test
    images of the training classes, and ``classes`` the names of the classes ``0, 1, …``. For re-identification,
    ``held_out`` and ``classes`` are empty. The field ``names`` has the names of identities and cameras, unless these
    are plain numbers. The field ``has_cameras`` is False if cameras are unknown; records then have camera numbers of
    :func:`cameras_of_test`. The field ``dates`` maps pairs of identity and outfit to the day on which
    the identity wore the outfit.
    """

    name: str
    train: tuple[Record, ...]
    query: tuple[Record, ...]
    gallery: tuple[Record, ...]
    tracks: tuple[int, ...] = ()
    single_shot: bool = False
    held_out: tuple[Record, ...] = ()
    classes: tuple[str, ...] = ()
    names: Names = field(default_factory=Names, compare=False)
    has_cameras: bool = field(default=True, compare=False)
    tracklets: bool = False
    dates: Mapping[tuple[int, int], str] = field(default_factory=dict, compare=False)


def trained_and_tested(data_set: DataSet) -> set[int]:
    """Return the identities that are both in the training split and in a test split, so that its test is invalid.

    Test images of classification, whose classes are all trained, are no fault. The numbers are compared; they mean
    different people if :attr:`lreid.data.spec.Spec.renumbered` is set.
    """
    trained = {record.pid for record in data_set.train} if not data_set.classes else set()
    return trained & {*(each.pid for each in data_set.query), *(each.pid for each in data_set.gallery)} - {DISTRACTOR}


@dataclass(frozen=True)
class Task:
    """One step of a lifelong sequence. Two tasks can share identities only if tasks are groups of cameras or dates.

    In a domain-incremental sequence, all tasks have the same classes in the same order. Labels still differ between
    tasks, as in Co²L (ICCV 2021, Section 5.1): the class is the label modulo ``shared_classes``.

    Attributes:
        index: position in the sequence, counted from 0.
        name: name in tables, for example ``market1501 3/10``.
        records: training images; ``pid`` is the class label. The C class labels of a benchmark are 0 to C - 1; later
            tasks have higher labels. If tasks are groups of cameras or dates, an identity has the same label in all
            tasks.
        held_out: test images of the task's classes, with class labels; empty in re-identification.
        shared_classes: number of classes that all tasks of a domain-incremental sequence share; 0 if tasks have
            different classes.
    """

    index: int
    name: str
    records: tuple[Record, ...]
    held_out: tuple[Record, ...] = ()
    shared_classes: int = 0

    @property
    def classes(self) -> list[int]:
        """List the class labels of this task, ascending."""
        return sorted({record.pid for record in self.records})


@dataclass(frozen=True)
class QueryGallery:
    """A test set: for every query, the gallery is ranked.

    Attributes:
        name: name of the test set, a column of the results tables.
        kind: ``"seen"`` if a task trains on the domain of the test set, ``"unseen"`` if no task does. ``"merged"`` if
            the test set combines other test sets of the benchmark; averages over test sets leave it out.
        query, gallery: records of the queries and of the gallery. A number means the same identity or camera in both
            lists.
        first_task: index of the first task that trains on the domain of the test set, or None if no task does.
        splits: random splits over which figures are averaged: for each split, the positions of its images in ``query``
            and ``gallery``. Without splits, every query is compared with the whole gallery.
        tracks: track of each gallery image, for tests that rank tracks instead of images (image-to-track search of
            VeRi-776). Without tracks, images are ranked. A test set cannot have both tracks and splits.
        single_shot: whether the CMC curve is computed for galleries with one randomly drawn image per identity
            (original protocol of CUHK03).
        in_gallery: number of queries that are also gallery images. If a query is also a gallery image, its ranking
            leaves out the query image itself, even if the camera filter is off. None for a published test set, whose
            protocol has no such rule.
        names: names of identities and cameras.
        has_cameras: whether cameras are known. If cameras are unknown, the camera filter leaves out no image.
        tracklets: whether queries and gallery entries are tracklets. The feature of a tracklet is the mean over its
            frames; ``query`` and ``gallery`` then contain all frames.
    """

    name: str
    kind: Literal["seen", "unseen", "merged"]
    query: tuple[Record, ...]
    gallery: tuple[Record, ...]
    first_task: int | None = None
    splits: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    tracks: tuple[int, ...] = ()
    single_shot: bool = False
    in_gallery: int | None = None
    names: Names = field(default_factory=Names, compare=False)
    has_cameras: bool = True
    tracklets: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queries and of gallery entries (images or tracklets)."""
        if self.tracklets:
            return len({each.tracklet for each in self.query}), len({each.tracklet for each in self.gallery})
        return len(self.query), len(self.gallery)


@dataclass(frozen=True)
class Benchmark:
    """A sequence of tasks, with the test sets that are evaluated after each task; iteration yields the tasks."""

    name: str
    tasks: tuple[Task, ...]
    tests: tuple[QueryGallery, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)
