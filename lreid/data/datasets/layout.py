"""What the loaders share: finding a data set's folder, listing its images, saying what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lreid.data.records import DataSet, Record
from lreid.errors import InputError

JUNK = -1  # a bad detection: neither right nor wrong, so it is dropped
DISTRACTOR = 0  # nobody, or a person without identity: a wrong answer in the gallery, nothing to train on


def find_home(
    root: Path,
    names: Sequence[str],
    *,
    folders: Collection[str],
    files: Collection[str] = (),
    title: str,
    source: str,
) -> Path:
    """The folder of a data set.

    Args:
        root: where all data sets lie.
        names: folders below ``root`` where it may be, best first.
        folders, files: what it must hold.
        title: its name for people.
        source: where a person gets it.

    Returns:
        The first of ``names`` that holds all of them.

    Raises:
        InputError: none of the folders is there, or one is but something in it is missing.
    """
    homes = [root / name for name in names if (root / name).is_dir()]
    if not homes:
        wanted = " or ".join(str(root / name) for name in names)
        raise InputError(
            f"{title}: no folder {wanted}; get the data set from {source} and unpack it there "
            f"(datasets/README.md shows the layout); {describe_folder(root)}"
        )
    lacking = {
        home: [f"{name}/" for name in folders if not (home / name).is_dir()]
        + [name for name in files if not (home / name).is_file()]
        for home in homes
    }
    for home, missing in lacking.items():
        if not missing:
            return home
    raise InputError(
        f"{title}: {homes[0]} lacks {', '.join(lacking[homes[0]])}; "
        f"{describe_folder(homes[0])}; unpack the archive as it comes (datasets/README.md shows the layout)"
    )


def describe_folder(folder: Path, limit: int = 8) -> str:
    """What a folder holds, for an error message: ``FOLDER holds a, b, c and 12 more``."""
    if not folder.is_dir():
        return f"{folder} does not exist"
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    if not names:
        return f"{folder} is empty"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{folder} holds {', '.join(names[:limit])}{more}"


def read_folders(name: str, home: Path, folders: Mapping[str, str], pattern: str, example: str) -> DataSet:
    """A data set with one folder a split, whose file names tell identity and camera.

    Args:
        name: of the data set.
        home: the folder of the data set.
        folders: the folder in it of each of ``train``, ``query`` and ``gallery``.
        pattern: regular expression for the start of a file name, with the groups ``pid`` and ``camid``.
        example: a file name that fits, for the error message.

    Returns:
        The records in the order of the file names, without junk and with no distractor in train.

    Raises:
        InputError: the name of an image does not fit the pattern, or a split has no image.
    """
    records = {split: _read_folder(home / folder, pattern, example) for split, folder in folders.items()}
    records["train"] = [record for record in records["train"] if record.pid != DISTRACTOR]
    data_set = DataSet(name, **{split: tuple(found) for split, found in records.items()})
    return require_splits(data_set, {split: home / folder for split, folder in folders.items()})


def _read_folder(folder: Path, pattern: str, example: str) -> list[Record]:
    records = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.suffix.lower() != ".jpg":
            continue  # the archives hold some Thumbs.db
        match = re.match(pattern, path.name)
        if match is None:
            raise InputError(f"{path}: unexpected name; expected one like {example}: rename or remove it")
        if int(match["pid"]) != JUNK:
            records.append(Record(str(path), int(match["pid"]), int(match["camid"])))
    return records


def require_splits(data_set: DataSet, sources: Mapping[str, Path]) -> DataSet:
    """Hands the data set back when none of its splits is empty.

    Args:
        data_set: as loaded.
        sources: the folder or file that each of ``train``, ``query`` and ``gallery`` was read from.

    Raises:
        InputError: a split has no image.
    """
    for split, source in sources.items():
        if not getattr(data_set, split):
            found = f"; {describe_folder(source)}" if source.is_dir() else ""
            raise InputError(f"{source}: no images for the {split} split of {data_set.name}{found}; add some")
    return data_set
