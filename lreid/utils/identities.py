"""Common rules for labels (identities and cameras): which are missing, which are junk, and which are equal.

* **Missing** labels are None, NaN, NaT, pandas' NA, masked values and blank text. Missing labels count as -1.
* **Junk** is -1 in any spelling: ``-1``, ``-1.0``, ``"-1"``, ``"-01"``, ``" -1.0"``.
* **Unknown labels match nothing**: -1 is not equal to any label, not even to another -1.
* **Text is compared as written**: ``"007"`` and ``"7"`` are different labels, about which lreid warns. Only the Unicode
  form does not matter: :func:`label_text` converts every label to NFC.
* **Numbers are compared as numbers**: 7.0 equals 7. Lists that mix numbers and text are refused.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal, TypeVar

import numpy as np

from lreid.errors import InputError
from lreid.utils.reading import escaped

logger = logging.getLogger("lreid")

# Callers and files write -1 for both: an identity that a gallery does not know, and junk in a test set. Where a gallery
# becomes a test set, identities_of_test() gives its unknown identities another number, because they are not junk.
UNKNOWN = -1  # in a gallery, an unknown identity, camera or time, which matches nothing
JUNK = -1  # in a test set, a bad detection, which is neither right nor wrong and therefore ignored
DISTRACTOR = 0  # in a test set, a gallery image of a person without a query

# How programs write missing values as text: Python, NumPy, pandas, R, C, JavaScript, databases (\N), and Excel, whose
# errors begin with # in every language. Na and Nan, in this spelling, are people's names.
WRITTEN_MISSING = re.compile(
    r"(?!Nan?$)(?i:-?nan|[+-]?1\.#(?:ind|qnan)|nat|<na>|none|#?n/?a|#nv|null|\\n|undefined|#\S+[!?])"
)
JUNK_TEXT = re.compile(r"\s*-0*1(\.0*)?\s*", re.ASCII)
NUMBER_TEXT = re.compile(r"\s*([+-]?)([0-9]+\.?[0-9]*([eE][+-]?[0-9]{1,4})?)\s*", re.ASCII)
INT64 = np.iinfo(np.int64)
STRANGER = INT64.min  # in a test set, a gallery image of unknown identity, which is ranked but matches no query

Label = TypeVar("Label", bound="str | None")
Outfits = Literal["both", "same", "changed"]  # the clothes in which a query's identity is searched


def label_of(value: Any, name: str) -> int | str:
    """Convert one label to an integer or text; a missing or junk label becomes -1.

    Args:
        value: integer, float with an integer value, or text; None, NaN, NaT, NA, masked and blank values are missing.
        name: name of the argument in error messages, such as ``"query identities"``.

    Raises:
        InputError: the value has another type, is a fraction, or is too large for a signed 64-bit integer.
    """
    if is_missing(value):
        return UNKNOWN
    if isinstance(value, str):
        return UNKNOWN if is_junk(value) else label_text(str(value))
    if getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic):
        value = value.item()  # the value is an array or a tensor with a single number
    if isinstance(value, (int, np.integer)):
        if not INT64.min <= value <= INT64.max:
            raise InputError(f"{name}: {int(value)} is too large for a signed 64-bit integer; use smaller numbers")
        return int(value)
    if isinstance(value, (float, np.floating)):
        digits = np.finfo(type(value) if isinstance(value, np.floating) else float).nmant
        if value % 1 or abs(value) > 2**digits:  # above this limit, several integers have the same float
            raise InputError(f"{name}: the float {value} does not represent a unique integer; give integers or text")
        return int(value)
    raise InputError(f"{name}: expected integers or text, got {value!r} of type {type(value).__name__}")


def label_text(value: Any) -> Any:
    """Convert text labels to Unicode's form NFC, because file names of a Mac are in NFD.

    Args:
        value: text, None, or a list of them.
    """
    if isinstance(value, (list, tuple)):
        return [label_text(each) for each in value]
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def is_missing(value: Any) -> bool:
    """Whether a label is missing: None, NaN, NaT, NA, a masked value, or blank text."""
    if isinstance(value, str):
        return not value.strip()
    if value is None or value is np.ma.masked:
        return True
    try:
        return bool(value != value)  # True for NaN and NaT
    except (TypeError, ValueError):  # pandas' NA and arrays have no truth value
        return type(value).__name__ == "NAType"


def require_written(label: Label, where: str) -> Label:
    """Convert a label at every entrance by `escaped` and :func:`label_text`, and refuse words for a missing value.

    Args:
        label: label as the user wrote it; None is accepted.
        where: place of the label in the message, such as ``list.csv:3: pid``.

    Raises:
        InputError: two missing identities with the same word would become one person.
    """
    if label is not None and WRITTEN_MISSING.fullmatch(label.strip()):
        raise InputError(
            f"{where} is {label!r}, which programs write for a missing value; leave it out if it is unknown, or rename "
            "it if it is a real name"
        )
    return label_text(escaped(label))


def is_junk(text: str) -> bool:
    """Whether a text, such as a table cell or a part of a file name, means junk (-1 in any spelling)."""
    return JUNK_TEXT.fullmatch(text) is not None


def same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compare two int64 label arrays elementwise, with broadcasting; unknown labels (-1) equal no label."""
    return (left == right) & (left != UNKNOWN)


def identities_of_test(identities: np.ndarray) -> np.ndarray:
    """Convert the identities ``(N,)`` int64 of a gallery to those of a test set: UNKNOWN becomes STRANGER, not JUNK."""
    return np.where(identities == UNKNOWN, STRANGER, identities)


def as_labels(values: Any, name: str, length: int) -> np.ndarray:
    """Convert integer labels to an ``(N,)`` int64 array; a missing label becomes -1.

    Raises:
        InputError: :func:`as_names` raises an error, or a label is text.
    """
    labels = as_names(values, name, length)
    if labels.dtype != np.int64:
        text = next(label for label in labels if label != str(UNKNOWN))
        raise InputError(f"{name}: expected integers, got text such as {text!r}")
    return labels


def as_names(values: Any, name: str, length: int) -> np.ndarray:
    """Convert labels to an ``(N,)`` int64 array, or to an array of strings (dtype object) if any label is text.

    Args:
        values: N labels of the types of :func:`label_of`, in a list, array, tensor, masked array or table column.
        name: name of the argument in error messages.

    Returns:
        Array of the labels. Missing and junk labels are -1, or ``"-1"`` if the array contains text.

    Raises:
        InputError: a value is not a label, numbers are mixed with text, there are not ``length`` values, or NumPy may
            have converted a missing value to text.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = values.tolist()  # masked values become None
    elif hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    elif hasattr(values, "__array__") and not isinstance(values, np.ndarray):
        # A table column; without dtype=object, a missing value would make its integers floats.
        values = np.asarray(values, dtype=object)
    if not isinstance(values, (np.ndarray, Sequence)) or isinstance(values, (str, bytes)):
        raise InputError(f"{name}: expected a list of integers or of text, got {type(values).__name__}")
    shape = values.shape if isinstance(values, np.ndarray) else (len(values),)
    if shape != (length,):
        raise InputError(f"{name}: expected {length}, one per feature row, got shape {shape}")
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "i":
            return values.astype(np.int64)
        if values.dtype.kind not in "ufOUT":
            raise InputError(f"{name}: expected integers or text, got {values.dtype}")
        if values.dtype.kind == "U" and (written := [*filter(WRITTEN_MISSING.fullmatch, values.tolist())]):
            raise InputError(
                f"{name}: NumPy may have made {written[0]!r} of a missing value in a text array; give a list, or an "
                "array of dtype object, with None in its place"
            )
        values = list(values) if values.dtype.kind == "f" else values.tolist()  # floats keep their precision
    if set(map(type, values)) == {int}:
        for most in (min(values), max(values)):
            label_of(most, name)
        return np.array(values, dtype=np.int64)
    labels = [label_of(value, name) for value in values]
    text = next((label for label in labels if isinstance(label, str)), None)
    if text is None:
        return np.array(labels, dtype=np.int64)
    number = next((label for label in labels if isinstance(label, int) and label != UNKNOWN), None)
    if number is not None:
        raise InputError(f"{name}: contains the number {number} and the text {text!r}; give only numbers or only text")
    return np.array([str(label) for label in labels], dtype=object)


def as_numbers(queries: np.ndarray, gallery: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Convert query and gallery labels to integers; integers are equal exactly where the labels are equal.

    Integer labels do not change. Text labels are numbered from 1, and the text "-1" becomes -1.

    Args:
        queries, gallery: labels from :func:`as_names`.
        name: name of the labels in error messages.

    Raises:
        InputError: one of query and gallery labels is text, and the other is integers.
    """
    if queries.dtype == gallery.dtype == np.int64:
        return queries, gallery
    for numbers, others, which in ((queries, gallery, "queries"), (gallery, queries, "gallery")):
        if numbers.dtype == np.int64 and (numbers != UNKNOWN).any():
            number, text = numbers[numbers != UNKNOWN][0], others[others != str(UNKNOWN)][0]
            raise InputError(
                f"{name}: those of the {which} are integers such as {number}, the others text such as {text!r}; "
                "give only numbers or only text"
            )
    texts = [str(label) for label in (*queries, *gallery)]
    number_of = {text: number for number, text in enumerate(sorted(set(texts)), start=1)} | {str(UNKNOWN): UNKNOWN}
    warn_of_spellings(number_of, name)
    numbered = np.array([number_of[text] for text in texts], dtype=np.int64)
    return numbered[: len(queries)], numbered[len(queries) :]


@dataclass(frozen=True)
class Labels:
    """Identities, cameras and outfits of N images.

    Attributes:
        ids: ``(N,)`` identities from :func:`as_names`, or int64 after :func:`comparable`.
        cameras: ``(N,)`` cameras or other sources of images, or None to turn off the camera filter.
        outfits: ``(N,)`` int64 outfits, numbered separately for each identity, or None to turn off the outfit filter.
        worn: which matches of a query count: those in the query's outfit (``same``), those in other outfits
            (``changed``), or ``both``.
    """

    ids: Any
    cameras: Any = None
    outfits: Any = None
    worn: Outfits = "both"

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Any) -> Labels:
        """Select the labels of some images by any numpy index."""
        cameras, outfits = (None if each is None else each[rows] for each in (self.cameras, self.outfits))
        return Labels(self.ids[rows], cameras, outfits, self.worn)


def comparable(query: Labels, gallery: Labels, shape: tuple[int, int]) -> tuple[Labels, Labels]:
    """Convert identities and cameras of queries and gallery to integers, see :func:`as_numbers`.

    Args:
        query, gallery: labels of the queries and of the gallery. Either both must have cameras or none.
        shape: numbers of queries and of gallery images, ``(Q, G)``.

    Raises:
        InputError: :func:`as_names` or :func:`as_numbers` raises an error, or only one of ``query`` and ``gallery`` has
            cameras.
    """

    def numbers(queries: Any, others: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
        queries, others = as_names(queries, f"query {name}", shape[0]), as_names(others, f"gallery {name}", shape[1])
        return as_numbers(queries, others, name)

    query_ids, gallery_ids = numbers(query.ids, gallery.ids, "identities")
    cameras: tuple[Any, Any] = (None, None)
    if query.cameras is not None or gallery.cameras is not None:
        cameras = numbers(query.cameras, gallery.cameras, "cameras")
    return replace(query, ids=query_ids, cameras=cameras[0]), replace(gallery, ids=gallery_ids, cameras=cameras[1])


def usable(query: Labels, gallery: Labels) -> np.ndarray:
    """Decide which gallery images are in a query's ranking: all except junk and filtered images.

    The camera filter removes images of the query's identity that are from the query's camera. The outfit filter removes
    images of the query's identity in the query's outfit (``changed``) or in another outfit (``same``), as in MEVID's
    official evaluation.

    Args:
        query, gallery: labels from :func:`comparable`, which are broadcast against each other. A filter is off if its
            labels (cameras or outfits) are None.

    Returns:
        Boolean array in the broadcast shape of the labels, True for images that are in the ranking.
    """
    ranked = np.broadcast_to(gallery.ids != JUNK, np.broadcast_shapes(query.ids.shape, gallery.ids.shape))
    own = same(query.ids, gallery.ids)
    if query.cameras is not None:
        ranked = ranked & ~(own & same(query.cameras, gallery.cameras))
    if query.outfits is not None:
        ranked = ranked & ~(own & ((query.outfits == gallery.outfits) == (query.worn == "changed")))
    return ranked


def ascending_ranks(names: Iterable[str]) -> dict[str, int]:
    """Map each name to its rank (from 0); the order is numerical if all names are integers, otherwise alphabetical."""
    distinct = sorted(set(names))
    if all(re.fullmatch(r"[+-]?[0-9]{1,1000}", name) for name in distinct):
        distinct.sort(key=int)
    return {name: rank for rank, name in enumerate(distinct)}


def warn_of_spellings(texts: Iterable[str], name: str) -> None:
    """Warn in the log if text labels spell the same number, such as ``007`` and ``7``, or ``1E+05`` and ``100000``."""
    by_number: dict[tuple[str, Decimal], list[str]] = {}
    for text in texts:
        if number := NUMBER_TEXT.fullmatch(text):
            by_number.setdefault((number[1].strip("+"), Decimal(number[2])), []).append(text)
    several = [spellings for spellings in by_number.values() if len(spellings) > 1]
    if several:
        pair, more = " and ".join(map(repr, sorted(several[0]))), f", and {len(several) - 1} more" * (len(several) > 1)
        logger.warning("%s: %s are different labels%s; write a number in only one way", name, pair, more)
