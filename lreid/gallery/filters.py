"""Filters of a search, which are conditions on the images that it may return."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.utils.identities import INT64, UNKNOWN, is_missing, label_of


@dataclass(frozen=True)
class Filter:
    """Conditions on the images that a search may return; labels are integers or text, as in the gallery.

    :class:`lreid.gallery.Gallery` replaces text by numbers, so that stores receive only integers.

    Attributes:
        cameras, identities: allowed values; ``None`` allows all, and -1 means images whose camera or identity is
            unknown.
        not_cameras, not_identities: excluded values; -1 excludes images whose camera or identity is unknown.
        since, until: limits of the time in seconds, ``since <= time < until``; ``None`` means no limit. With a limit,
            images without a time are excluded.
        not_both: pairs of an identity and a camera; images with this identity from this camera are excluded. A pair
            that contains -1 excludes nothing, because an unknown label equals no other label.

    Raises:
        InputError: a value is missing, is neither a 64-bit integer nor text, or is a single value instead of a list.
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
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _integer(value, name))

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

    def allows(self, ids: np.ndarray, cams: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return a mask ``(N,)`` bool of the images whose labels, each ``(N,)`` int64, pass the filter."""
        allowed = np.ones(len(ids), dtype=bool)
        for column, only, none in ((cams, self.cameras, self.not_cameras), (ids, self.identities, self.not_identities)):
            if only is not None:
                allowed &= np.isin(column, list(only))
            if none:
                allowed &= ~np.isin(column, list(none))
        if self.since is not None or self.until is not None:
            allowed &= times > UNKNOWN
        if self.since is not None:
            allowed &= times >= self.since
        if self.until is not None:
            allowed &= times < self.until
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


def _integer(value: Any, name: str) -> int:
    try:
        number = int(operator.index(value))  # a plain int, because a subclass of int could print as any text
    except TypeError:
        raise InputError(f"filter {name}: {value!r} is not an integer") from None
    if not INT64.min <= number <= INT64.max:
        raise InputError(f"filter {name}: {number} does not fit into 64 bits")
    return number


EVERYTHING = Filter()
