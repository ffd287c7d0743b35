"""Custom data: a CSV file with the columns ``path,pid,split`` and optionally ``camid`` and ``domain``."""

import csv
import difflib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from lreid.data.layout import cameras_of_test, require_splits
from lreid.data.records import CameraPolicy, DataSet, Names, Record
from lreid.data.schemes import Scheme, Sources
from lreid.errors import InputError
from lreid.utils.extras import Extra
from lreid.utils.identities import WRITTEN_MISSING, ascending_ranks, is_junk, warn_of_spellings
from lreid.utils.reading import raise_if_unreadable, require_regular

logger = logging.getLogger("lreid")

COLUMNS = ("path", "pid", "split")
SPLITS = ("train", "query", "gallery")
DELIMITERS = ",;\t"  # spreadsheets write ";" where the comma is the decimal separator
OML, WILDLIFE = "label", "identity"  # names of the column pid in OML and wildlife-datasets
OML_SPLITS = {"is_query": "query", "is_gallery": "gallery"}  # columns that divide OML's split "validation"
OML_BOX = "x_1"  # first of OML's columns of a bounding box
PARQUET = ".parquet"
TRUE, FALSE = ("true", "1", "1.0"), ("false", "0", "0.0", "")


class Row(NamedTuple):
    """One line of the CSV file."""

    line: int  # line number, from 1
    path: str
    pid: str  # identity; empty if unknown
    camid: str  # camera; empty if unknown: there is no such column, or the cell is empty or -1
    split: str  # empty if there is no such column
    domain: str
    time: str  # any text; empty if there is none


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
        cameras: rule for camera numbers if ``camid`` is unknown, see :func:`lreid.data.layout.cameras_of_test`.
        root: a second folder that may contain the images, such as the folder of all data sets.

    Raises:
        InputError: the file cannot be read, lacks a column or has a faulty line (the message gives its number), or a
            domain has only one of query and gallery.
    """
    rows = read_rows(file, root=root)
    return [_data_set(file, domain, rows, cameras) for domain in dict.fromkeys(row.domain for row in rows)]


def _data_set(file: Path, domain: str, rows: Iterable[Row], cameras: CameraPolicy) -> DataSet:
    rows = sorted((row for row in rows if row.domain == domain), key=lambda row: row.path)
    trained = {row.pid: row.line for row in rows if row.split == "train"}
    for row in rows:
        if row.split != "train" and row.pid in trained:
            raise InputError(
                f"{file}:{row.line}: identity {row.pid!r} is in {row.split} here and in train on line "
                f"{trained[row.pid]}; test on identities that are not trained on"
            )
    unknown = next((row.line for row in rows if not row.camid), None)
    labelled = next((row.line for row in rows if row.camid), None)
    if labelled is not None and unknown is not None:
        raise InputError(
            f"{file}:{unknown}: has no camid, but line {labelled} has one; fill in all of them, or remove the column"
        )
    pids, camids = ascending_ranks(row.pid for row in rows), ascending_ranks(row.camid for row in rows)
    for name, labels in (("pid", pids), ("camid", camids)):
        warn_of_spellings(labels, f"{file}: {name}")
    default_camera = cameras_of_test(cameras)
    splits: dict[str, Any] = {
        split: tuple(
            Record(
                str(file.parent / row.path), pids[row.pid], camids[row.camid] if row.camid else default_camera[split]
            )
            for row in rows
            if row.split == split
        )
        for split in SPLITS
    }
    tested = dict.fromkeys(("query", "gallery"), file) if splits["query"] or splits["gallery"] else {}
    cameras_named = {rank: name for name, rank in camids.items() if name}
    names = Names({rank: name for name, rank in pids.items()}, cameras_named)
    return require_splits(DataSet(domain, **splits, names=names, has_cameras=bool(cameras_named)), tested)


def read_rows(file: Path, *, splits: bool = True, named: bool = True, root: Path | None = None) -> list[Row]:
    """Read and check all rows of a CSV file; return them without junk.

    Args:
        splits: whether the file must have a column ``split``. Without a column ``split``, every row has an empty string
            as its split.
        named: whether every row must have an identity.
        root: as in :func:`load`.
    """
    require_regular(file)
    table = _parquet(file) if file.suffix.lower() == PARQUET else _lines(file)
    if table:
        _translate(file, table)
    header = table[0][1] if table else []
    missing = [name for name in COLUMNS if name not in header and (splits or name != "split")]
    if missing:
        raise InputError(
            f"{file}:1: the header lacks {', '.join(missing)}; expected {','.join(COLUMNS)}[,camid][,domain], "
            f"found {','.join(header) or 'an empty file'}"
            + "; to let lreid choose the splits of a list, pass own:FILE"
            * (missing == ["split"])
        )
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{file}:1: the header has {twice} twice; remove or rename one of the two")
    rows: list[Row] = []
    first_line: dict[str, int] = {}
    for line, values in table[1:]:
        row = _row(file, line, header, values, named=named)
        if "\\" in row.path and not os.path.exists(file.parent / row.path):
            row = row._replace(path=row.path.replace("\\", "/"))  # the list was written on Windows
        if root is not None and not os.path.exists(file.parent / row.path) and os.path.exists(root / row.path):
            row = row._replace(path=os.path.abspath(root / row.path))
        path = _path_inside(file, row, root)
        if path in first_line:
            raise InputError(f"{file}:{line}: {row.path} is already on line {first_line[path]}; remove one of the two")
        first_line[path] = line
        if not is_junk(row.pid):
            rows.append(row)
    if not rows:
        raise InputError(f"{file}: holds no images; write one line per image below the header")
    # One existing path proves that the base folder is right. The others need not exist: a user may have deleted the
    # images of past tasks before resuming a run.
    if not any(os.path.exists(file.parent / row.path) for row in rows):  # exists() is False for impossible paths
        tried = dict.fromkeys(str(folder / rows[0].path) for folder in (file.parent, root) if folder is not None)
        raise InputError(
            f"{file}:{rows[0].line}: none of the images exists, for instance {' or '.join(tried)}; pass root='DIR', "
            "the folder to which the paths are relative"
        )
    return rows


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Read the line number and the values of each line that is not empty."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            header = stream.readline()
            lines = csv.reader(stream, delimiter=max(DELIMITERS, key=header.count))  # a comma if it has none of them
            stream.seek(0)
            return [(lines.line_num, [value.strip() for value in values]) for values in lines if any(values)]
    except (OSError, ValueError, csv.Error) as error:  # ValueError: not UTF-8, or a NUL in the path
        raise_if_unreadable(error, file, "CSV file")
        raise InputError(
            f"{file}: cannot be read as CSV in UTF-8 ({error}); save it as CSV in UTF-8, or name a folder of images"
        ) from None


def _parquet(file: Path) -> list[tuple[int, list[str]]]:
    """Read a Parquet table that pandas wrote; a row's line number is the one that it would have in a CSV file."""
    parquet = Extra("pyarrow.parquet", "parquet").load()
    try:
        table = parquet.read_table(file)
        columns = [column.to_pylist() for column in table.columns]
    except Exception as error:  # pyarrow raises its own errors
        raise_if_unreadable(error, file)
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file}: cannot be read as Parquet ({reason}); write the table again, or write CSV") from None
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
            raise InputError(
                f"{file}:{line}: has a bounding box ({OML_BOX}); crop the images to their boxes and remove the column"
            )
        if OML_SPLITS.keys() <= columns.keys() and "split" in columns and values[columns["split"]] == "validation":
            flags = {split: values[columns[column]].lower() for column, split in OML_SPLITS.items()}
            splits = [split for split, value in flags.items() if value in TRUE]
            if len(splits) != 1 or not all(value in (*TRUE, *FALSE) for value in flags.values()):
                raise InputError(
                    f"{file}:{line}: is_query is {flags['query']!r}, is_gallery {flags['gallery']!r}; one must be "
                    "True, the other False, because an image that is both would match itself"
                )
            values[columns["split"]] = splits[0]


def _path_inside(file: Path, row: Row, root: Path | None) -> str:
    """Return an image's normalised path; refuse paths outside the list's folder and ``root``, for safety."""
    folders = [os.path.abspath(each) for each in (file.parent, root) if each is not None]
    path = os.path.normpath(os.path.join(folders[0], row.path))
    if not any(os.path.commonpath([folder, path]) == folder for folder in folders):
        raise InputError(
            f"{file}:{row.line}: {row.path} lies outside {' and '.join(map(str, folders))}; name the folder of the "
            "images as root='DIR', or move the CSV file or the image"
        )
    return path


def _row(file: Path, line: int, header: list[str], values: list[str], *, named: bool) -> Row:
    if len(values) != len(header):
        raise InputError(
            f"{file}:{line}: {len(values)} values for {len(header)} columns; "
            "give every column a value, and quote values that contain the separator"
        )
    named_values = dict(zip(header, values, strict=True))
    cells = {"domain": file.stem, "camid": "", "split": "", "time": "", **named_values}
    empty = [name for name in (*COLUMNS, "domain") if named_values.get(name) == "" and (named or name != "pid")]
    if empty:
        raise InputError(f"{file}:{line}: {', '.join(empty)} is empty; fill it in")
    for name in ("pid", "camid"):
        if cells[name] in WRITTEN_MISSING:
            raise InputError(
                f"{file}:{line}: {name} is {cells[name]!r}, which programs write for a missing value; fill in the "
                "value, leave the cell empty if it is unknown, or rename it if it is a real name"
            )
    if is_junk(cells["camid"]):
        cells["camid"] = ""
    if "split" in named_values and cells["split"] not in SPLITS:
        raise InputError(f"{file}:{line}: split is {cells['split']!r}; must be one of {', '.join(SPLITS)}")
    return Row(line, *(cells[name] for name in Row._fields[1:]))


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
        nearest = difflib.get_close_matches(domain, names, n=1, cutoff=0.0)[0]
        raise InputError(f"{file}: no domain {domain}; the nearest name is {nearest} (all: {', '.join(names)})")
    return [data_sets[names.index(domain)]]


SCHEME = Scheme(_load_named)
