"""Records, one per image, and the groups of records that form data sets and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lreid.identities import UNKNOWN

CameraPolicy = Literal["apart", "same"]  # see lreid.data.layout.cameras_of_test


class Record(NamedTuple):
    """One image: its path, identity and camera.

    Attributes:
        path: an image file, or the address of an image without a file (see :mod:`lreid.data.schemes`).
        pid: identity, an integer. In a :class:`Task` this is the class label.
        camid: camera, an integer.
    """

    path: str
    pid: int
    camid: int

    @property
    def outfit(self) -> int:
        """Number of the outfit that the identity wears; -1 if unknown, as in every record except a :class:`Frame`."""
        return UNKNOWN

    @property
    def tracklet(self) -> int:
        """Number of the record's tracklet within its split; -1 if it belongs to none."""
        return UNKNOWN


class Frame(Record):
    """An image of a tracklet: a record with an outfit and a tracklet, which still unpacks into three values."""

    outfit = UNKNOWN
    tracklet = UNKNOWN

    def __new__(cls, path: str, pid: int, camid: int, outfit: int = UNKNOWN, tracklet: int = UNKNOWN) -> Frame:
        """Create a frame; the outfits of each identity are numbered separately."""
        frame = super().__new__(cls, path, pid, camid)
        frame.outfit, frame.tracklet = outfit, tracklet
        return frame

    def _replace(self, **changes: Any) -> Frame:
        """Return a copy with another path, identity or camera."""
        return Frame(*super()._replace(**changes), self.outfit, self.tracklet)


@dataclass(frozen=True)
class Names:
    """Names of identity and camera numbers. A number without a name is its own name."""

    identities: Mapping[int, str] = field(default_factory=dict)
    cameras: Mapping[int, str] = field(default_factory=dict)

    def identity(self, pid: int) -> str:
        """The name to show: ``car_0002``, or ``id 0002`` if the name is a number."""
        name = self.identities.get(pid, str(pid))
        return f"id {name}" if name.isdecimal() else name

    def camera(self, camid: int) -> str:
        """The name to show: ``cam north``, ``cam 2``."""
        return f"cam {self.cameras.get(camid, camid)}"

    def behind(self, other: Names, pid_offset: int, camid_offset: int) -> Names:
        """Merge these names with those of a second data set, to whose numbers the offsets are added."""
        return Names(
            {**self.identities, **{pid + pid_offset: name for pid, name in other.identities.items()}},
            {**self.cameras, **{camid + camid_offset: name for camid, name in other.cameras.items()}},
        )


@dataclass(frozen=True)
class DataSet:
    """One data set as it was loaded: lists of records with the numbers that its authors gave.

    ``train`` is empty if the data set is only for testing. ``tracks``, ``single_shot`` and ``tracklets`` mean the same
    as in :class:`QueryGallery`. ``held_out`` lists test images of the training classes, for image classification, and
    ``classes`` then lists the names of the classes ``0, 1, …``; both are empty in re-identification. ``names`` has the
    names of identities and cameras that are not numbers. ``has_cameras`` says whether cameras are known; if not, the
    records have the camera numbers of :func:`lreid.data.layout.cameras_of_test`. ``dates`` maps identity and outfit to
    the day on which the outfit was worn.
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


@dataclass(frozen=True)
class Task:
    """One step of a lifelong sequence: images of identities that no other task contains, unless tasks are groups.

    In a domain-incremental sequence, all tasks have the same classes in the same order, so a label modulo
    ``shared_classes`` is the class. Labels still differ between tasks, as in Co²L (ICCV 2021, Section 5.1).

    Attributes:
        index: position in the sequence, from 0.
        name: name for tables, for instance ``market1501 3/10``.
        records: training images; ``pid`` is the class label. Labels of all tasks together are
            ``0 .. C-1``, ascending from task to task; if tasks are groups, an identity that returns keeps its label.
        held_out: test images of the same classes, with class labels; empty in re-identification.
        shared_classes: classes that all tasks of a domain-incremental sequence share; 0 if every task has its own
            classes.
        labels: labels reserved for pseudo-labels, which may get images in a later epoch.
    """

    index: int
    name: str
    records: tuple[Record, ...]
    held_out: tuple[Record, ...] = ()
    shared_classes: int = 0
    labels: tuple[int, ...] = ()

    @property
    def classes(self) -> list[int]:
        """The class labels of this task, ascending."""
        return sorted({*self.labels, *(record.pid for record in self.records)})


@dataclass(frozen=True)
class QueryGallery:
    """One test set: the gallery is ranked for every query.

    Attributes:
        name: column of the results tables.
        kind: ``"seen"`` if a task trains on the same domain, ``"unseen"`` if none does. ``"merged"`` if the benchmark
            also contains its parts as separate test sets, so that averages leave the merged one out.
        query, gallery: records; the two lists share the numbers of identities and cameras.
        first_task: index of the first task of its domain; ``None`` if the test set is not seen.
        splits: if figures are averaged over several splits, the positions in ``query`` and in ``gallery`` that each
            split contains. Empty: every query is compared with the whole gallery.
        tracks: track of each gallery image, if tracks are ranked instead of images (VeRi-776's image-to-track search).
            Empty: images are ranked. A test set has tracks or splits, not both.
        single_shot: whether the CMC curve is computed on galleries with one randomly drawn image per identity (the
            first protocol of CUHK03).
        in_gallery: number of queries that are also gallery images. Such an image is left out of the ranking of its own
            query, even if the camera filter is off.
        names: names of the identities and cameras.
        has_cameras: whether cameras are known; if they are not, the camera filter leaves out no image.
        tracklets: whether queries and gallery entries are tracklets, whose feature is the mean over their frames.
            ``query`` and ``gallery`` then contain all frames.
    """

    name: str
    kind: Literal["seen", "unseen", "merged"]
    query: tuple[Record, ...]
    gallery: tuple[Record, ...]
    first_task: int | None = None
    splits: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    tracks: tuple[int, ...] = ()
    single_shot: bool = False
    in_gallery: int = 0
    names: Names = field(default_factory=Names, compare=False)
    has_cameras: bool = True
    tracklets: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queries and of gallery entries: images, or tracklets."""
        query, gallery = (
            {record.tracklet for record in records} if self.tracklets else records
            for records in (self.query, self.gallery)
        )
        return len(query), len(gallery)


@dataclass(frozen=True)
class Benchmark:
    """A sequence of tasks, over which it iterates, and the test sets that are evaluated after each task."""

    name: str
    tasks: tuple[Task, ...]
    tests: tuple[QueryGallery, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)
