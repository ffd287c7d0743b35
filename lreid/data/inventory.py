"""Check which data sets exist, and whether their sizes are the published sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from pathlib import Path

from tabulate import tabulate

from lreid.data.custom import TooFew
from lreid.data.datasets import DEV, Sources, find_dataset, is_address, load_datasets, split_count
from lreid.data.images import copies, require_files
from lreid.data.records import SPLITS, DataSet, NotThere, Record, grouped, trained_and_tested
from lreid.data.spec import COLUMNS, Counts
from lreid.errors import InputError, counted
from lreid.utils.identities import UNKNOWN


@dataclass(frozen=True)
class Finding:
    """The state of one data set.

    Attributes:
        name: name of the data set as in ``BENCHMARK.TRAIN``, or of a domain of a CSV file.
        status: ``"complete"`` if the counts are the published counts; ``"there"`` if no counts are published;
            ``"different"`` if counts differ or the data set has a fault; ``"broken"`` if it cannot be loaded;
            ``"missing"`` if it does not exist.
        notes: one sentence per difference, fault, or reason for the status.
        data_set: the loaded data set, or None if it cannot be loaded.
    """

    name: str
    status: str
    notes: list[str] = field(default_factory=list)
    data_set: DataSet | None = None


def check_dataset(name: str, root: Path, *, files: bool = False, pattern: str = "") -> list[Finding]:
    """Load a data set and compare it with the published counts.

    Args:
        name: name of the data set, as in :func:`lreid.data.datasets.load_datasets`.
        root: folder of the data sets.
        files: whether to check that every image exists and is not empty.
        pattern: pattern of the paths in a folder of custom images, see :class:`lreid.data.listing.Pattern`.

    Returns:
        A list with one finding; for a CSV file, one finding per domain.

    Raises:
        InputError: no data set has this name.
    """
    if is_address(name):
        raise InputError(f"{name}: comes with lreid; there are no files to check")
    spec, unfit = find_dataset(name), ""
    try:
        data_sets = load_datasets(name, Sources(root, pattern=pattern))
    except TooFew as error:
        data_sets, unfit = [error.gallery], str(error).partition(": ")[2]
    except InputError as error:
        if spec is None:
            raise
        if isinstance(error, NotThere):
            return [Finding(name, "missing", [f"expected in {' or '.join(map(str, spec.layout.places(root)))}"])]
        return [Finding(name, "broken", [str(error)])]
    findings = []
    for data_set in data_sets:
        wrong = differences(counts(data_set), spec.published if spec else {})
        if files:
            wrong += unreadable_note([*data_set.train, *data_set.query, *data_set.gallery])
        # Some published sets have queries without a match, so this fault alone does not make a set different.
        odd = faults(data_set, renumbered=spec is not None and spec.renumbered)
        if spec and spec.published:
            status = "different" if wrong else "complete"
        else:
            own = find_dataset(name.removeprefix(DEV)) is None
            status = "different" if wrong or (odd and own) else "there"
        notes = [*wrong, *odd, *[unfit] * bool(unfit)]
        if files and not data_set.tracklets and (same := copies(data_set.query, data_set.gallery)):
            total = len(data_set.query)
            notes.append(f"{len(same)} of {total} queries have the pixels of a gallery image, the first is {same[0]}")
        findings.append(Finding(name if spec else data_set.name, status, notes, data_set))
    return findings


def counts(data_set: DataSet) -> Counts:
    """Count identities and images per split, and the cameras of all splits.

    Returns:
        Counts under the names in :data:`lreid.data.spec.COLUMNS`. If cameras are unknown, the number of cameras is 0,
        whatever camera numbers the records have.
    """
    splits = {split: getattr(data_set, split) for split in SPLITS}
    totals = {f"{split} identities": len({record.pid for record in records}) for split, records in splits.items()}
    totals |= {f"{split} images": len(records) for split, records in splits.items()}
    cameras = {record.camid for records in splits.values() for record in records}
    return totals | {"cameras": len(cameras) if data_set.has_cameras else 0}


def differences(measured: Counts, published: Counts) -> list[str]:
    """List counts that differ from the published ones: ``"query images: 3367, published 3368 (1 missing)"``."""
    notes = []
    for column in COLUMNS:
        if column in published and measured[column] != published[column]:
            change = measured[column] - published[column]
            kind = "too many" if change > 0 else "missing"
            notes.append(f"{column}: {measured[column]}, published {published[column]} ({abs(change)} {kind})")
    return notes


def faults(data_set: DataSet, *, renumbered: bool = False) -> list[str]:
    """List faults of a data set that make a test invalid.

    Faults are test identities in ``train``, queries without a match, and queries whose only matches come from their own
    camera.

    Args:
        renumbered: whether an identity number means different people in the training list and in the test lists.
    """
    by_identity = grouped(data_set.gallery, attrgetter("pid"))
    cameras = {pid: {record.camid for record in records} for pid, records in by_identity.items()}
    absent = sum(record.pid not in cameras for record in data_set.query)
    both = set() if renumbered else trained_and_tested(data_set)
    filtered = sum(cameras.get(record.pid) == {record.camid} != {UNKNOWN} for record in data_set.query)
    notes = []
    if both:
        notes.append(f"{counted(len(both), 'identity')} in training and in a test split, for instance {min(both)}")
    if absent:
        notes.append(f"{absent} of {len(data_set.query)} queries have no image of their identity in the gallery")
    if filtered:
        notes.append(
            f"{filtered} of {len(data_set.query)} queries have matches only from their own camera, which the camera "
            "filter leaves out (EVAL.CAMERA_FILTER False turns the filter off)"
        )
    return notes


def unreadable_note(records: Iterable[Record]) -> list[str]:
    """Describe missing and empty images in a note, by their number and the first path, without decoding images."""
    reasons = []
    for record in records:
        try:
            require_files([record])
        except InputError as error:
            reasons.append(str(error).partition(";")[0])
    return [f"{counted(len(reasons), 'image')} unreadable, the first: {reasons[0]}"] if reasons else []


def counts_table(findings: Sequence[Finding]) -> str:
    """Format the counts of data sets as a text table, followed by the notes."""
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        cells = ["", "", "", ""]
        if finding.data_set is not None:
            totals = counts(finding.data_set)
            cells = [f"{totals[f'{s} identities']} / {totals[f'{s} images']}" for s in SPLITS]
            cells.append(str(totals["cameras"] or "none"))
        splits = split_count(finding.name)
        rows.append((finding.name, finding.status, *cells, str(splits) if splits > 1 else ""))
    heads = ("data set", "status", "train", "query", "gallery", "cameras", "splits")
    lines = ["identities / images", tabulate(rows, heads, disable_numparse=True)]
    by_note = grouped(((note, finding.name) for finding in findings for note in finding.notes), itemgetter(0))
    notes = [f"{', '.join(name for _, name in pairs)}: {note}" for note, pairs in by_note.items()]
    lines += ["", *notes] if notes else []
    return "\n".join(lines)
