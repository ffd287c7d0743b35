"""What every storage engine of a gallery holds: labels of the images and properties of the gallery; and its filters."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.utils.clock import require_clock
from lreid.utils.identities import UNKNOWN, as_labels, as_names, is_missing, label_of, label_text, warn_of_spellings

SCHEME = "milvus:"  # prefix of the address of a database

Paths = Sequence[str] | np.ndarray  # names of images
Files = str | Path | Sequence[str | Path] | np.ndarray  # names of images: paths or text
LabelNames = dict[str, dict[int, str]]  # names of identities and cameras, by number
PLURAL = {"identity": "identities", "camera": "cameras"}
LABELS = tuple(PLURAL)
COMPARE: dict[str, Callable[[np.ndarray, Any], np.ndarray]] = {  # the comparisons of filters
    "in": np.isin,
    "not in": partial(np.isin, invert=True),
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
}


@dataclass(frozen=True)
class GalleryRows:
    """Labels, times and paths of N images.

    Attributes:
        keys: ``(N,)`` int64, the engine's keys of the images in ascending order. Removing images does not change the
            keys of other images.
        ids, cams, times: ``(N,)`` int64; -1 means unknown. Times are in seconds.
        paths: ``(N,)`` different strings.
    """

    keys: np.ndarray
    ids: np.ndarray
    cams: np.ndarray
    times: np.ndarray
    paths: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: np.ndarray | slice) -> GalleryRows:
        return GalleryRows(*(column[rows] for column in vars(self).values()))


@dataclass
class About:
    """Properties of a whole gallery.

    Attributes:
        model: fingerprint of the model that computed the features.
        kind: ``flat`` (exact), ``hnsw`` or ``ivfpq``; see :mod:`lreid.gallery.shards`.
        recall: ``{k: recall@k}`` compared with exact search, measured when the gallery was built; empty if unknown.
        threshold: cosine similarity below which a search returns "unknown", or ``None`` before calibration.
        false_accept_rate: share of impostors that the threshold accepts.
        calibrated_on: number of images from which the threshold was computed, or None if unknown.
        names: text label of each number, for the keys ``identity`` and ``camera``. A number without a name is itself
            the label.
        extras: arrays that are stored with the gallery, for example statistics that normalise its features. The extras
            are set when the gallery is built and never change.
        shards: number of parts of a faiss index, which are searched in parallel.
        whole: False while the gallery is being filled, when it must not be searched.
    """

    model: str
    kind: str = "flat"
    recall: dict[int, float] = field(default_factory=dict)
    threshold: float | None = None
    false_accept_rate: float | None = None
    calibrated_on: int | None = None
    names: dict[str, dict[int, str]] = field(default_factory=dict)
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    shards: int = 1
    whole: bool = True

    def __post_init__(self) -> None:
        # galleries of earlier versions may have names in another Unicode form
        self.names = {what: {k: label_text(name) for k, name in of.items()} for what, of in self.names.items()}


class MapRecord(NamedTuple):
    """A map that replaced the extraction of a gallery's images by a new model.

    Attributes:
        model: fingerprint of the model from whose features the map leads to those of the next model.
        images: number of images on which the map was fitted.
        cosine, baseline: see :class:`lreid.retrieval.feature_map.FeatureMap`.
    """

    model: str
    images: int
    cosine: float
    baseline: float

    @classmethod
    def read(cls, extras: dict[str, np.ndarray]) -> list[MapRecord]:
        """Read the maps of a gallery from its extras, oldest first."""
        columns = [extras[f"map/{name}"].tolist() for name in cls._fields if f"map/{name}" in extras]
        return [cls(*row) for row in zip(*columns, strict=True)]

    @classmethod
    def to_arrays(cls, maps: Sequence[MapRecord]) -> dict[str, np.ndarray]:
        """Return arrays from which :meth:`read` restores maps."""
        columns = zip(cls._fields, zip(*maps, strict=True), strict=True)
        return {f"map/{name}": np.array(column) for name, column in columns}


@dataclass(frozen=True)
class Filter:
    """Conditions on the images that a search may return; labels are integers or text, as in the gallery.

    :class:`lreid.gallery.Gallery` replaces text by numbers, so that storage engines receive only integers.

    Attributes:
        cameras, identities: allowed values; ``None`` allows all, and -1 means images whose camera or identity is
            unknown.
        not_cameras, not_identities: excluded values; -1 excludes images whose camera or identity is unknown.
        since, until: limits of the time in seconds, ``since <= time < until``; ``None`` means no limit. With a limit,
            images without a time are excluded.
        not_both: pairs of an identity and a camera; images with this identity from this camera are excluded. A pair
            that contains -1 excludes nothing, because an unknown label equals no other label.

    Raises:
        InputError: a value is missing, is neither an integer nor text, or is a single value instead of a list.
    """

    cameras: Collection[int | str] | None = None
    not_cameras: Collection[int | str] = ()
    identities: Collection[int | str] | None = None
    not_identities: Collection[int | str] = ()
    since: int | None = None
    until: int | None = None
    not_both: Collection[tuple[int | str, int | str]] = ()

    def __post_init__(self) -> None:
        pairs = {tuple(_labels(pair, "not_both")) for pair in _listed(self.not_both, "not_both")}
        if any(len(pair) != 2 for pair in pairs):
            raise InputError("filter not_both: needs pairs of an identity and a camera")
        object.__setattr__(self, "not_both", _ordered(pair for pair in pairs if UNKNOWN not in pair))
        for name in ("cameras", "not_cameras", "identities", "not_identities"):
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, _ordered(_labels(values, name)))
        for name in ("since", "until"):
            if not isinstance(value := getattr(self, name), (int, np.integer, type(None))):
                raise InputError(f"filter {name}: {value!r} is not an integer")
            if value is not None:
                require_clock(value, f"filter {name}:")

    def numbered(self, number_of: Callable[[str, int | str], int]) -> Filter:
        """Return the same filter with integers as labels."""
        ids, cams = partial(number_of, "identity"), partial(number_of, "camera")
        return replace(
            self,
            cameras=None if self.cameras is None else [*map(cams, self.cameras)],
            not_cameras=[*map(cams, self.not_cameras)],
            identities=None if self.identities is None else [*map(ids, self.identities)],
            not_identities=[*map(ids, self.not_identities)],
            not_both=[(ids(pid), cams(cam)) for pid, cam in self.not_both],
        )

    def conditions(self) -> Iterator[tuple[str, str, Any]]:
        """Return the conditions on single labels as triples of a column, a key of ``COMPARE``, and integers."""
        cameras, identities = (self.cameras, self.not_cameras), (self.identities, self.not_identities)
        for column, (only, none) in (("camera", cameras), ("identity", identities)):
            if only is not None:
                yield column, "in", [int(value) for value in only]
            if none:
                yield column, "not in", [int(value) for value in none]
        if self.since is not None or self.until is not None:
            yield "time", ">", UNKNOWN
        if self.since is not None:
            yield "time", ">=", int(self.since)
        if self.until is not None:
            yield "time", "<", int(self.until)

    def allows(self, ids: np.ndarray, cams: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return a mask ``(N,)`` bool of the images whose labels, each ``(N,)`` int64, pass the filter."""
        columns, allowed = {"identity": ids, "camera": cams, "time": times}, np.ones(len(ids), dtype=bool)
        for column, comparison, value in self.conditions():
            allowed &= COMPARE[comparison](columns[column], value)
        for identity, camera in self.not_both:
            allowed &= (ids != identity) | (cams != camera)
        return allowed


def _listed(values: Any, name: str) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"filter {name}: {values!r} is one value; give a list of them")
    return list(values)


def _labels(values: Any, name: str) -> list[int | str]:
    labels = _listed(values, name)
    for value in filter(is_missing, labels):
        raise InputError(f"filter {name}: {value!r} is a missing label; write -1 for images whose label is not known")
    return [label_of(value, f"filter {name}") for value in labels]


def _ordered(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sort distinct labels or pairs, so that equal filters compare equal."""
    return tuple(sorted(set(values), key=repr))


EVERYTHING = Filter()


def require_keys(keys: np.ndarray, there: np.ndarray) -> None:
    """Check that images with these keys exist."""
    missing = keys[~np.isin(keys, there)]
    if len(missing):
        raise InputError(f"key {missing[0]}: no image in the gallery has this key; use keys from labels or matches")


def hash_of(text: str) -> int:
    """Hash a text to a number from 1 to 2^63 - 1."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


def names_of(paths: Files) -> list[str]:
    """Convert names of images to text; ``Path("a.jpg")`` and ``"a.jpg"`` name the same image."""
    if isinstance(paths, (str, os.PathLike)):
        return [str(paths)]
    if not isinstance(paths, Iterable):
        raise ArgumentError("paths", f"is {paths!r}; give a list of names, such as ['a.jpg', 'b.jpg']")
    return [str(path) for path in paths]


def checked_labels(
    count: int, ids: Any, cams: Any, times: Any, paths: list[str], names: LabelNames
) -> tuple[GalleryRows, LabelNames]:
    """Return the labels of new images as integers (without keys), and all names of the gallery including new ones."""
    if len(paths) != count:
        raise ArgumentError("paths", f"has {len(paths)} names, but there are {count} feature rows")
    if len(set(paths)) != count:
        raise ArgumentError("paths", "contains a name twice; give every image a different name")
    unknown, columns, names = np.full(count, UNKNOWN), [], dict(names)
    for what, column in zip(LABELS, (ids, cams), strict=True):
        labels = unknown if column is None else as_names(column, f"gallery {PLURAL[what]}", count)
        old_names = names.get(what, {})
        columns.append(numbers_of(labels, old_names))
        if labels.dtype == object:
            new = dict(zip(columns[-1].tolist(), labels.tolist(), strict=True))
            names[what] = {number: name for number, name in (old_names | new).items() if number != UNKNOWN}
            warn_of_spellings(names[what].values(), f"gallery {PLURAL[what]}")
    seconds = unknown if times is None else as_labels(times, "gallery times", count)
    require_clock(seconds, "gallery times: a time")
    identities, cameras = columns
    return GalleryRows(unknown, identities, cameras, seconds, np.array(paths, dtype=object)), names


def numbers_of(labels: np.ndarray, names: dict[int, str]) -> np.ndarray:
    """Return the numbers ``(N,)`` int64 of labels; a new text gets its hash, and the text "-1" means unknown."""
    if labels.dtype == np.int64:
        return labels
    numbers = {name: number for number, name in names.items()} | {str(UNKNOWN): UNKNOWN}
    return np.array([numbers[label] if label in numbers else hash_of(label) for label in labels], dtype=np.int64)


def as_given(numbers: np.ndarray, names: dict[int, str] | None) -> np.ndarray:
    """Return labels in the form in which they were given: integers, or text (dtype object, None if unknown)."""
    if not names:
        return numbers
    given = np.empty(numbers.size, dtype=object)
    given[:] = [None if number == UNKNOWN else names.get(number, number) for number in numbers.ravel().tolist()]
    return given.reshape(numbers.shape)
