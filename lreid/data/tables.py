"""Load data sets and test sets from a CSV or Parquet table with the columns ``path,pid,split`` and others."""

import csv
import logging
import os
import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from lreid.data.datasets import Scheme, Sources
from lreid.data.listing import Listed, data_set_of, own_test
from lreid.data.records import SPLITS, CameraPolicy, DataSet, QueryGallery, grouped
from lreid.data.spec import require_images
from lreid.errors import InputError, nearest_name
from lreid.utils.extras import Extra
from lreid.utils.files import spelled
from lreid.utils.identities import is_junk, require_written, warn_of_spellings
from lreid.utils.reading import naming_damage, require_regular

logger = logging.getLogger("lreid")

COLUMNS = ("path", "pid", "split")
DELIMITERS = ",;\t"  # spreadsheets write ";" where the comma is the decimal separator
OML, WILDLIFE = "label", "identity"  # names of the column pid in OML and wildlife-datasets
OML_SPLITS = {"is_query": "query", "is_gallery": "gallery"}  # columns that divide OML's split "validation"
OML_BOX = "x_1"  # first of OML's columns of a bounding box
PARQUET = ".parquet"
TRUE = ("true", "1", "1.0")


def load(file: Path, *, cameras: CameraPolicy = "apart", root: Path | None = None) -> list[DataSet]:
    """Load one data set per domain of a CSV file, in the order in which the domains first occur.

    The first line names the columns in any order, separated by commas, semicolons or tabs. lreid reads these columns
    and ignores all others:

    * ``path``: the image file, in the folder of the CSV file or in ``root``; the path is absolute, or relative to
      either folder.
    * ``pid``: identity, any text. Lines with the identity ``-1`` or ``-1.0`` mark junk and are dropped. An identity
      that occurs in two domains means two different people.
    * ``camid``: optional; camera, any text. An empty cell or ``-1`` stands for an unknown camera. Within a domain,
      either all lines must have a camera, or none.
    * ``split``: ``train``, ``query`` or ``gallery``. No identity may be both in ``train`` and in ``query`` or
      ``gallery``. A domain may lack ``train`` lines, or it may lack both ``query`` and ``gallery`` lines.
    * ``domain``: optional; name of the data set to which the line belongs. Without a column ``domain``, the whole file
      is one data set with the name of the file.

    A backslash in a path separates folders, unless there is a file whose name contains the backslash. lreid also reads
    lists of OML and wildlife-datasets, see :func:`_translate`.

    Identities and cameras get the numbers ``0, 1, …`` in ascending order of their names. Names are compared as numbers
    if all names of a domain are integers, otherwise as text. Records are sorted by path, so the order of lines does not
    matter.

    Args:
        file: the CSV file, UTF-8.
        cameras: rule for camera numbers if ``camid`` is unknown, see :func:`lreid.data.records.cameras_of_test`.
        root: a second folder that may contain the images, such as the folder of all data sets.

    Raises:
        InputError: the file cannot be read, lacks a column or has a faulty line (the message gives its number), or a
            domain has only one of query and gallery.
    """
    domains = grouped(read_table(file, root=root), attrgetter("domain"))
    return [_data_set(file, domain, sorted(images), cameras) for domain, images in domains.items()]


def _data_set(file: Path, domain: str, images: Sequence[Listed], cameras: CameraPolicy) -> DataSet:
    trained = {image.identity: image.line for image in images if image.split == "train"}
    for image in images:
        if image.split != "train" and image.identity in trained:
            raise InputError(
                f"{file}:{image.line}: identity {image.identity!r} is in {image.split} here and in train on line "
                f"{trained[image.identity]}; test on identities that are not trained on"
            )
    unknown = next((image.line for image in images if image.camera is None), None)
    labelled = next((image.line for image in images if image.camera is not None), None)
    if labelled is not None and unknown is not None:
        raise InputError(f"{file}:{unknown}: has no camid; line {labelled} has one: fill in all, or remove the column")
    data_set = data_set_of(domain, images, cameras, has_cameras=labelled is not None)
    for name, labels in (("pid", data_set.names.identities), ("camid", data_set.names.cameras)):
        warn_of_spellings(labels.values(), f"{file}: {name}")
    if data_set.query or data_set.gallery:
        for split in ("query", "gallery"):
            require_images(data_set, split, file)
    return data_set


def csv_tests(file: Path, root: Path | None = None) -> list[QueryGallery]:
    """Build one test set per domain of a table with the splits ``query`` and ``gallery``.

    Raises:
        InputError: the file cannot be read or is faulty, or a domain has no query or no gallery image.
    """
    domains = grouped((image for image in read_table(file, root=root) if image.split != "train"), attrgetter("domain"))
    if not domains:
        raise InputError(f"{file}: has no image of the split query; add some")
    tests = []
    for domain, images in domains.items():
        splits = {split: [image for image in images if image.split == split] for split in ("query", "gallery")}
        for split, chosen in splits.items():
            if not chosen:
                raise InputError(f"{file}: domain {domain} has no image of the split {split}; add some")
        tests.append(own_test(domain, **splits))
    return tests


def read_table(file: Path, *, splits: bool = True, named: bool = True, root: Path | None = None) -> list[Listed]:
    """Read and check all rows of a table; return its images without junk.

    Args:
        splits: whether the table must have a column ``split``.
        named: whether every row must have an identity.
        root: as in :func:`load`.
    """
    require_regular(file)
    table = _parquet(file) if file.suffix.lower() == PARQUET else _lines(file)
    if table:
        _translate(file, table)
    header = table[0][1] if table else []
    # Columns without a name, such as those that were emptied in Excel, mean nothing.
    if repeated := [name for name, count in Counter(header).items() if name and count > 1]:
        raise InputError(f"{file}:1: the header has {repeated[0]} twice; remove or rename one of the two")
    missing = [name for name in COLUMNS if name not in header and (splits or name != "split")]
    if missing:
        raise InputError(
            f"{file}:1: the header lacks {', '.join(missing)}; expected {','.join(COLUMNS)}[,camid][,domain], "
            f"found {','.join(header) or 'an empty file'}"
            + "; to let lreid choose the splits of a list, pass own:FILE"
            * (missing == ["split"])
        )
    images: list[Listed] = []
    first_line: dict[str, int] = {}
    for line, values in table[1:]:
        image = _image(file, line, header, values, named=named, root=root)
        if (first := first_line.setdefault(os.path.abspath(image.path), line)) != line:
            path = values[header.index("path")]
            raise InputError(f"{file}:{line}: {path} is already on line {first}; remove one of the two")
        if image.identity is None or not is_junk(image.identity):
            images.append(image)
    if not images:
        raise InputError(f"{file}: holds no images; write one line per image below the header")
    # One existing path proves that the base folder is right. The others need not exist: a user may have deleted the
    # images of past tasks before resuming a run.
    if not any(os.path.exists(image.path) for image in images):  # exists() is False for impossible paths
        raise InputError(
            f"{file}:{images[0].line}: none of the images exists, for instance {images[0].path}; pass root='DIR', the "
            "folder to which the paths are relative"
        )
    return images


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Read the line number and the values of each line that is not empty."""
    advice = "save it as CSV in UTF-8, or name a folder of images"
    damage = naming_damage(file, "cannot be read as CSV in UTF-8", advice, "CSV file")
    with damage, open(file, encoding="utf-8-sig", newline="") as stream:
        header = stream.readline()
        named = re.fullmatch(r"sep=(.)\s*", header)  # Excel may write such a line above the header
        # A comma if the header has none of the delimiters.
        lines = csv.reader(stream, delimiter=named[1] if named else max(DELIMITERS, key=header.count))
        stream.seek(0)
        rows = [(lines.line_num, [value.strip() for value in values]) for values in lines if any(values)]
        return rows[bool(named) :]


def _parquet(file: Path) -> list[tuple[int, list[str]]]:
    """Read a Parquet table that pandas wrote; a row's line number is the one that it would have in a CSV file."""
    parquet = Extra("pyarrow.parquet", "parquet").load()
    with naming_damage(file, "cannot be read as Parquet", "write the table again, or write CSV"):
        table = parquet.read_table(file)
        columns = [column.to_pylist() for column in table.columns]
    rows = [["" if value is None else str(value).strip() for value in row] for row in zip(*columns, strict=True)]
    return list(enumerate([list(table.column_names), *rows], 1))


def _translate(file: Path, table: list[tuple[int, list[str]]]) -> None:
    """Give a list of OML or wildlife-datasets the columns of lreid, in place; other lists do not change.

    Without a column ``pid``, the column ``label`` (OML) or ``identity`` (wildlife-datasets) is renamed to ``pid``. In
    OML's split ``validation``, the columns ``is_query`` and ``is_gallery`` say which images are queries and which form
    the gallery. Rows of wildlife-datasets with the identity ``unknown`` are dropped, because they show different
    animals.
    """
    header = table[0][1]
    columns = {name: place for place, name in enumerate(header)}
    if "pid" in columns or len(formats := [name for name in (OML, WILDLIFE) if name in columns]) != 1:
        return
    pid = columns[formats[0]]
    header[pid] = "pid"
    if formats == [WILDLIFE]:
        labelled = [(line, values) for line, values in table if values[pid : pid + 1] != ["unknown"]]
        if left_out := len(table) - len(labelled):
            logger.warning("%s: %d images of the identity 'unknown' left out", file, left_out)
        table[:] = labelled
        return
    for line, values in table[1:]:
        if len(values) != len(header):
            continue  # a later check reports this row
        if OML_BOX in columns and values[columns[OML_BOX]]:
            raise InputError(f"{file}:{line}: has a bounding box ({OML_BOX}); crop the images, remove the column")
        if OML_SPLITS.keys() <= columns.keys() and "split" in columns and values[columns["split"]] == "validation":
            flags = {split: values[columns[column]].lower() for column, split in OML_SPLITS.items()}
            splits = [split for split, value in flags.items() if value in TRUE]
            if len(splits) != 1:
                raise InputError(
                    f"{file}:{line}: is_query is {flags['query']!r}, is_gallery {flags['gallery']!r}; one must be "
                    "True, the other False, because an image that is both would match itself"
                )
            values[columns["split"]] = splits[0]


def _image(file: Path, line: int, header: list[str], values: list[str], *, named: bool, root: Path | None) -> Listed:
    """Check the values of a row and return its image."""
    if len(values) != len(header):
        raise InputError(
            f"{file}:{line}: {len(values)} values for {len(header)} columns; "
            "give every column a value, and quote values that contain the separator"
        )
    cells = dict(zip(header, values, strict=True))
    empty = [name for name in (*COLUMNS, "domain") if cells.get(name) == "" and (named or name != "pid")]
    if empty:
        raise InputError(f"{file}:{line}: {', '.join(empty)} is empty; fill it in")
    for name in cells.keys() & {"pid", "camid", "domain"}:
        cells[name] = require_written(cells[name], f"{file}:{line}: {name}")
    if "split" in cells and cells["split"] not in SPLITS:
        raise InputError(f"{file}:{line}: split is {cells['split']!r}; must be one of {', '.join(SPLITS)}")
    return Listed(
        _path(file, line, cells["path"], root),
        cells["pid"] or None,
        None if is_junk(cells.get("camid", "-1")) else cells["camid"] or None,
        cells.get("time", ""),
        cells.get("split", ""),
        cells.get("domain", file.stem),
        line,
    )


def _path(file: Path, line: int, path: str, root: Path | None) -> str:
    """Return the path of an image, which is relative to the table or to ``root``; refuse other folders, for safety."""
    if "\\" in path and not os.path.exists(file.parent / path):
        path = path.replace("\\", "/")  # the table was written on Windows
    roots = [file.parent, *filter(None, [root])]
    path = spelled(path, lambda form: any(os.path.exists(each / form) for each in roots))
    if root is not None and not os.path.exists(file.parent / path) and os.path.exists(root / path):
        path = os.path.abspath(root / path)
    folders = [os.path.abspath(each) for each in roots]
    whole = os.path.normpath(os.path.join(folders[0], path))
    if not any(os.path.commonpath([folder, whole]) == folder for folder in folders):
        raise InputError(
            f"{file}:{line}: {path} lies outside {' and '.join(folders)}; name the folder of the images as "
            "root='DIR', or move the CSV file or the image"
        )
    return str(file.parent / path)


def _load_named(name: str, sources: Sources, split: int) -> list[DataSet]:
    """Load ``PATH`` or ``PATH#DOMAIN``. If ``PATH`` contains ``#``, the longest existing path counts as the file."""
    parts = name.split("#")
    for end in range(len(parts), 0, -1):
        path, domain = "#".join(parts[:end]), "#".join(parts[end:])
        if any(os.path.exists(file) for file in (path, sources.root / Path(path))):
            break
    file = sources.existing(path, "CSV file")
    data_sets = load(file, cameras=sources.cameras, root=Path(sources.root))
    if not domain:
        return data_sets
    names = [data_set.name for data_set in data_sets]
    if domain not in names:
        nearest = nearest_name(domain, names)
        raise InputError(f"{file}: no domain {domain}; the nearest name is {nearest} (all: {', '.join(names)})")
    return [data_sets[names.index(domain)]]


SCHEME = Scheme(_load_named)
