"""Which data sets are there, and whether they are the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

from lreid.data.datasets import LOADERS, SPLITS, load_datasets
from lreid.data.datasets.layout import NotThere
from lreid.data.images import require_files
from lreid.data.records import DataSet, Record
from lreid.data.synthetic import is_synthetic
from lreid.errors import InputError

Counts = dict[str, int]
COLUMNS = (
    "train identities",
    "train images",
    "query identities",
    "query images",
    "gallery identities",
    "gallery images",
    "cameras",
)
_VEHICLEID = {"train identities": 13164, "train images": 113346}
_VERI_WILD = {"train identities": 30671, "train images": 277797}
_CUHK03 = {
    "train identities": 767,
    "query identities": 700,
    "query images": 1400,
    "gallery identities": 700,
    "cameras": 2,
}


def _published(*counts: int | None) -> Counts:
    return {column: count for column, count in zip(COLUMNS, counts, strict=True) if count is not None}


# In the order of COLUMNS; None where it is not published. Gallery identities count 0 (distractors) as one. Query and
# gallery are those of a single split.
_MSMT17 = _published(1041, 30248, 3060, 11659, 3060, 82161, 15)
_CUHK03_CLASSIC = _published(1367, None, 100, None, 100, None, 2)
_VERI776 = _published(576, 37778, 200, 1678, 200, 11579, 20)
PUBLISHED: dict[str, Counts] = {
    "market1501": _published(751, 12936, 750, 3368, 751, 15913, 6),
    "msmt17_v1": _MSMT17,
    "msmt17_v2": _MSMT17,
    "msmt17_v1+val": _MSMT17 | {"train images": 32621},
    "msmt17_v2+val": _MSMT17 | {"train images": 32621},
    "cuhk03_detected": _CUHK03 | {"train images": 7365, "gallery images": 5332},
    "cuhk03_labeled": _CUHK03 | {"train images": 7368, "gallery images": 5328},
    "cuhk03_classic_detected": _CUHK03_CLASSIC,
    "cuhk03_classic_labeled": _CUHK03_CLASSIC,
    "cuhk03_classic_detected_single_shot": _CUHK03_CLASSIC,
    "cuhk03_classic_labeled_single_shot": _CUHK03_CLASSIC,
    "cuhk_sysu": _published(5532, 15080, 2900, 2900, 2900, None, None),
    "cuhk_sysu_sub": _published(None, None, 2900, 2900, 2900, None, None),
    "lpw": _published(1975, 418739, 756, 63118, 756, 108690, 11),
    "viper": _published(316, 632, 316, 316, 316, 316, 2),
    "prid2011": _published(100, 200, 100, 100, 649, 649, 2),
    "grid": _published(125, 250, 125, 125, 126, 900, 8),
    "ilids": _published(59, None, 60, 60, 60, 60, None),
    "cuhk01": _published(485, 1940, 486, 972, 486, 972, 2),
    "cuhk02": _published(1577, 6308, 239, 478, 239, 478, 10),
    "sensereid": _published(0, 0, 522, 1040, 1717, 3388, 2),
    "veri776": _VERI776,
    "veri776_tracks": _VERI776,
    "vehicleid_small": _VEHICLEID | {"query images": 5693, "gallery identities": 800, "gallery images": 800},
    "vehicleid_medium": _VEHICLEID | {"query images": 11777, "gallery identities": 1600, "gallery images": 1600},
    "vehicleid_large": _VEHICLEID | {"query images": 17377, "gallery identities": 2400, "gallery images": 2400},
    "veri_wild_small": _VERI_WILD | {"query identities": 3000, "query images": 3000, "gallery images": 38861},
    "veri_wild_medium": _VERI_WILD | {"query identities": 5000, "query images": 5000, "gallery images": 64389},
    "veri_wild_large": _VERI_WILD | {"query identities": 10000, "query images": 10000, "gallery images": 128517},
}


@dataclass(frozen=True)
class Finding:
    """What there is of one data set.

    Attributes:
        name: of its loader, or of a domain of a CSV file.
        status: ``"complete"``, ``"there"`` where nothing is published to compare with, ``"different"`` from the
            published counts or faulty in itself, ``"broken"`` where it cannot be loaded, ``"missing"`` where
            there is nothing at all.
        notes: every difference or the reason, a sentence each.
        data_set: what was loaded, None where nothing was.
    """

    name: str
    status: str
    notes: list[str] = field(default_factory=list)
    data_set: DataSet | None = None


def look(name: str, root: Path, *, files: bool = False) -> list[Finding]:
    """Loads a data set and compares it with what is published.

    Args:
        name: as for :func:`lreid.data.datasets.load_datasets`.
        root: where the data sets lie.
        files: also look whether every image is there and not empty.

    Returns:
        One finding, or one for every domain of a CSV file.

    Raises:
        InputError: there is no loader of this name.
    """
    if is_synthetic(name):
        raise InputError(f"{name}: is drawn by a program; there are no files to look at")
    try:
        data_sets = load_datasets(name, root, {})
    except NotThere as error:
        places = " or ".join(map(str, error.places))
        return [Finding(name, "missing", [f"expected in {places}"])]
    except InputError as error:
        if name not in LOADERS:
            raise
        return [Finding(name, "broken", [str(error)])]
    findings = []
    for data_set in data_sets:
        wrong = differences(counts(data_set), PUBLISHED.get(name, {}))
        if files:
            wrong += unreadable([*data_set.train, *data_set.query, *data_set.gallery])
        odd = faults(data_set)  # some published sets have such people, so they alone make no difference there
        title = name if name in LOADERS else data_set.name
        if name in PUBLISHED:
            status = "different" if wrong else "complete"
        else:
            status = "different" if wrong or odd else "there"
        notes = wrong + odd
        findings.append(Finding(title, status, notes, data_set))
    return findings


def counts(data_set: DataSet) -> Counts:
    """Identities and images of each split, and cameras of all, by the names in :data:`COLUMNS`."""
    found: Counts = {}
    for split in ("train", "query", "gallery"):
        records = getattr(data_set, split)
        found[f"{split} identities"] = len({record.pid for record in records})
        found[f"{split} images"] = len(records)
    records = (*data_set.train, *data_set.query, *data_set.gallery)
    found["cameras"] = len({record.camid for record in records})
    return found


def differences(found: Counts, published: Counts) -> list[str]:
    """Every count that is not the published one, such as ``"query images: 3367, published 3368 (1 missing)"``."""
    notes = []
    for column in COLUMNS:
        if column in published and found[column] != published[column]:
            change = found[column] - published[column]
            kind = "too many" if change > 0 else "missing"
            notes.append(f"{column}: {found[column]}, published {published[column]} ({abs(change)} {kind})")
    return notes


def faults(data_set: DataSet) -> list[str]:
    """What makes a test worthless: identities that are trained on, queries without a match, one camera for all."""
    trained = {record.pid for record in data_set.train}
    cameras: dict[int, set[int]] = {}
    for record in data_set.gallery:
        cameras.setdefault(record.pid, set()).add(record.camid)
    absent = sum(record.pid not in cameras for record in data_set.query)
    # Only where numbers tell people apart across splits (the test lists of MSMT17 begin at 0 again) and where they
    # are not shared on purpose.
    both = (
        {record.pid for record in data_set.query} & trained
        if not data_set.name.startswith("msmt17") and not data_set.held_out
        else set()
    )
    filtered = sum(cameras.get(record.pid) == {record.camid} for record in data_set.query)
    notes = []
    if both:
        notes.append(f"{len(both)} identities are in train and in query, for instance {min(both)}")
    if absent:
        notes.append(f"{absent} of {len(data_set.query)} queries have no image of their identity in the gallery")
    if filtered:
        notes.append(
            f"{filtered} of {len(data_set.query)} queries have a match by their own camera only, which the camera "
            "filter leaves out (EVAL.CAMERA_FILTER False turns it off)"
        )
    return notes


def unreadable(records: Iterable[Record]) -> list[str]:
    """How many images are missing or empty, with the first one; no image is decoded."""
    reasons = []
    for record in records:
        try:
            require_files([record])
        except InputError as error:
            reasons.append(str(error).partition(";")[0])
    return [f"{len(reasons)} images cannot be read, the first: {reasons[0]}"] if reasons else []


def table(findings: Sequence[Finding]) -> str:
    """The counts of data sets as lines of text, identities / images, with notes below."""
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        cells = ["", "", "", ""]
        if finding.data_set is not None:
            found = counts(finding.data_set)
            cells = [f"{found[f'{s} identities']} / {found[f'{s} images']}" for s in ("train", "query", "gallery")]
            cells.append(str(found["cameras"]))
        rows.append((finding.name, finding.status, *cells, str(SPLITS.get(finding.name, ""))))
    heads = ("data set", "status", "train", "query", "gallery", "cameras", "splits")
    lines = [tabulate(rows, heads, disable_numparse=True)]
    notes: dict[str, list[str]] = {}
    for finding in findings:
        for note in finding.notes:
            notes.setdefault(note, []).append(finding.name)
    lines += ["", *(f"{', '.join(names)}: {note}" for note, names in notes.items())] if notes else []
    return "\n".join(["identities / images", *lines])
