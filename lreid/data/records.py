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
        path: a file, or the address of an image that needs none (see :mod:`lreid.data.schemes`).
        pid: identity, an integer. In a :class:`Task` it is the class label.
        camid: camera, an integer.
    """

    path: str
    pid: int
    camid: int

    @property
    def outfit(self) -> int:
        """Number of the clothes that its identity wears; -1 where it is not known, as in all but a :class:`Frame`."""
        return UNKNOWN

    @property
    def tracklet(self) -> int:
        """Number of its tracklet in its split; -1 where it belongs to none."""
        return UNKNOWN


class Frame(Record):
    """An image of a tracklet: a record with an outfit and a tracklet, which still unpacks to three values."""

    outfit = UNKNOWN
    tracklet = UNKNOWN

    def __new__(cls, path: str, pid: int, camid: int, outfit: int = UNKNOWN, tracklet: int = UNKNOWN) -> Frame:
        """The record; outfits are numbered for each identity on its own."""
        frame = super().__new__(cls, path, pid, camid)
        frame.outfit, frame.tracklet = outfit, tracklet
        return frame

    def _replace(self, **changes: Any) -> Frame:
        """The frame with other path, identity or camera."""
        return Frame(*super()._replace(**changes), self.outfit, self.tracklet)


@dataclass(frozen=True)
class Names:
    """Names of identity and camera numbers. A number without a name is its own name."""

    identities: Mapping[int, str] = field(default_factory=dict)
    cameras: Mapping[int, str] = field(default_factory=dict)

    def identity(self, pid: int) -> str:
        """For people: ``car_0002``, or ``id 0002`` where the name is a number."""
        name = self.identities.get(pid, str(pid))
        return f"id {name}" if name.isdecimal() else name

    def camera(self, camid: int) -> str:
        """For people: ``cam north``, ``cam 2``."""
        return f"cam {self.cameras.get(camid, camid)}"

    def behind(self, other: Names, pid_offset: int, camid_offset: int) -> Names:
        """These and those of another data set, whose numbers are moved."""
        return Names(
            {**self.identities, **{pid + pid_offset: name for pid, name in other.identities.items()}},
            {**self.cameras, **{camid + camid_offset: name for camid, name in other.cameras.items()}},
        )


@dataclass(frozen=True)
class DataSet:
    """One data set as loaded: three lists of records with the ids of its authors.

    ``train`` is empty where a data set is for testing only. ``tracks`` and ``single_shot`` are those of
    :class:`QueryGallery`. ``held_out`` are other images of the training identities, to classify; empty where those
    tested are others, as in re-identification. ``classes`` are then the names of the identities ``0, 1, …``. ``names``
    are those of data whose identities and cameras are no numbers. ``has_cameras`` says whether cameras are known; the
    records of a set without have those of :func:`lreid.data.layout.cameras_of_test`. ``tracklets`` is that of
    :class:`QueryGallery`. ``dates`` are the days on which outfits were worn, by identity and outfit.
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
    """One step of a lifelong sequence: images of identities that no other task holds, unless tasks are groups.

    In a domain-incremental sequence they are the same classes in every task, in the same order, so that a label modulo
    ``shared_classes`` is the class. Labels still differ between tasks: so does Co²L (ICCV 2021, Section 5.1).

    Attributes:
        index: position in the sequence, from 0.
        name: shown in tables, for instance ``market1501 3/10``.
        records: training images; ``pid`` is the class label. Labels of all tasks together are
            ``0 .. C-1``, ascending from task to task; in tasks by groups, who returns has the label of before.
        held_out: test images of the same classes, with class labels; empty in re-identification.
        shared_classes: classes that all tasks of a domain-incremental sequence share; 0 if every task has its own
            classes.
        labels: labels without an image so far, which pseudo-labels may use in a later epoch.
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
        kind: ``"seen"`` where a task trains on the same domain, ``"unseen"`` where none does; ``"merged"`` is
            made of test sets that are there one by one too, so averages leave it out.
        query, gallery: records with ids that both lists share.
        first_task: index of the first task of its domain; ``None`` where it is not seen.
        splits: where the figures of several splits are averaged, each split's positions in ``query`` and in
            ``gallery``. Empty: every query against the whole gallery.
        tracks: track of each gallery image, if tracks are ranked instead of images (VeRi-776's image-to-track search).
            Empty: images are ranked. A test set has tracks or splits, not both.
        single_shot: the CMC curve is that of galleries with one image an identity, drawn at random (the first
            protocol of CUHK03).
        in_gallery: how many queries are gallery images, too; each is left out of its own ranking, even where the camera
            filter is off.
        names: names of the identities and cameras.
        has_cameras: whether cameras are known; where they are not, no image is left out by its camera.
        tracklets: whether queries and gallery are tracklets, each with the mean feature of its frames. ``query`` and
            ``gallery`` are then all frames.
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
    """A sequence of tasks, to be iterated over, and the test sets that are evaluated after each of them."""

    name: str
    tasks: tuple[Task, ...]
    tests: tuple[QueryGallery, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)
