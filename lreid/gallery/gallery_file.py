"""The file of a gallery: one or several faiss indexes, followed by a zip archive with all other data.

One file contains everything, so that a single rename replaces everything. Both ``faiss.read_index`` and ``unzip -l``
can open this file. faiss stops reading at the end of its index and can map the index into memory. Programs that read
zip files search for the archive from the end of the file.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from lreid.errors import InputError, raise_if_out_of_memory
from lreid.gallery.shards import keys_in, require_kind
from lreid.retrieval.faiss_library import KINDS, import_faiss
from lreid.utils.files import finish, hold, make_folder, remove_leftovers, require_replaceable, unfinished
from lreid.utils.reading import misfit, raise_if_unreadable, require_not_newer, require_regular

FORMAT = 1
# Required form of the header of a gallery, in the notation of lreid.utils.reading.misfit.
HEADER = {
    "model": str,
    "kind": str,
    "recall": [list],
    "threshold": (int, float, type(None)),
    "false_accept_rate": (int, float, type(None)),
    "calibrated_on?": (int, type(None)),
    "names": {str: [list]},
    "shards": int,
    "whole": bool,
    "next_key": int,
    "paths": [str],
}
COLUMNS = ("keys", "ids", "cams", "times")
CHECKSUM = "index_crc32"  # name of the array that contains the checksum of the indexes
MOST_KEYS = 2**32  # maximum number of images ever added, because a filter has one bit per image
Stamp = tuple[int, ...]  # identity and state of a file, as the operating system reports them


def stamp(path: str | Path | int) -> Stamp:
    """Return a value that changes when a file, given by path or descriptor, is replaced or changed.

    Raises:
        OSError: the file does not exist.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def unchanged(path: str | Path, seen: Stamp | None) -> Iterator[None]:
    """Lock a file within a context, so that no other process of lreid can replace it.

    Raises:
        InputError: the file was replaced or changed: its stamp is not ``seen``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise InputError(f"{path}: was deleted while this command ran; nothing was written") from None
    try:
        hold(descriptor)
        if stamp(path) != seen:  # also True if the file was replaced while this process waited for the lock
            raise InputError(
                f"{path}: another process has changed the file in the meantime; nothing was written, run this again"
            )
        yield
    finally:
        with suppress(OSError):  # nothing was written through the descriptor, so errors do not matter
            os.close(descriptor)


def write_gallery(
    path: Path,
    indexes: list[Any],
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    seen: Stamp | None = None,
    *,
    new: bool = False,
) -> Stamp:
    """Write a gallery to a temporary file next to ``path`` and rename it, so that readers never see an incomplete file.

    Until the caller calls :func:`lreid.utils.files.sync_folder`, a power cut may undo the change. Only the owner can
    read a file that did not exist before.

    Args:
        path: the file. An existing file is replaced only when the new file is complete. The new file gets the mode and
            owner of the old file.
        header: JSON values.
        arrays: numeric arrays by name.
        seen: stamp of the file when the index was read from it. If another process has replaced the file since the
            index was read, nothing is written.
        new: whether to refuse an existing file.

    Returns:
        The stamp of the new file.

    Raises:
        InputError: the folder cannot be written to, the disk is full, or the file has changed since it was read; the
            old file stays unchanged.
    """
    try:
        require_replaceable(path)
        if seen is None:  # otherwise the folder existed; if it was renamed or deleted since, do not create it again
            make_folder(path.parent)
        for version in ("", ".next", ".previous"):
            remove_leftovers(path.parent, path.name + version)
        with unfinished(path, private=True) as file:
            _write_content(file, indexes, header, arrays)
            finish(file, path)
            written = stamp(file.fileno())
            if new:
                _create(path, file.name)
            else:
                with nullcontext() if seen is None else unchanged(path, seen):
                    os.replace(file.name, path)
    except (OSError, RuntimeError) as error:  # faiss reports a failed write as a RuntimeError
        raise_if_out_of_memory(error, path)
        raise InputError(f"{path}: cannot be written ({error}); the previous version is intact") from None
    return written


def require_gallery(path: Path) -> None:
    """Refuse a file that does not look like a gallery, before lreid replaces or deletes it.

    Raises:
        InputError: the file is not a gallery.
    """
    with suppress(OSError, zipfile.BadZipFile):
        if path.is_file():  # opening a pipe would block
            with zipfile.ZipFile(path) as archive:
                if {"header.npy", f"{CHECKSUM}.npy"} <= {*archive.namelist()}:
                    return
    raise InputError(f"{path}: is not a gallery or is damaged, so it is not replaced; move it away")


def _create(path: Path, source: str) -> None:
    """Link a file to its final name. If several processes create the same name, only one of them succeeds."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise InputError(f"{path}: already exists; another process has created it in the meantime") from None


def read_gallery(path: str | Path, memory_map: bool) -> tuple[list[Any], dict[str, Any], dict[str, np.ndarray], Stamp]:
    """Read indexes, header, arrays and stamp from a file that :func:`write_gallery` wrote.

    Args:
        path: the file.
        memory_map: whether to leave the index on disk. A memory-mapped index must not be changed, because faiss would
            then write to read-only memory.

    Raises:
        InputError: the file is missing, truncated, damaged, from another version of lreid, or not a gallery; or it has
            shards and is to be memory-mapped.
    """
    import_faiss()  # here, so that a missing module is not reported as a damaged file
    try:
        require_regular(path)
        seen = stamp(path)
        with open(path, "rb") as file:
            header, arrays, checksum, end = _read_archive(path, file)
            whole = memory_map or checksum == _crc32(file, end)
    except Exception as error:  # zipfile and numpy raise many kinds of exceptions for damaged files
        raise_if_unreadable(error, path, advice="build a gallery first")
        raise InputError(f"{path}: not a gallery, or cut short ({error}); build it again") from None
    if isinstance(header, dict) and header.pop("format", None) != FORMAT:
        raise InputError(f"{path}: a gallery of another version of lreid; build it again")
    if fault := misfit(header, HEADER) or _fault(header, arrays):
        raise InputError(f"{path}: not a gallery of this version of lreid ({fault}); build it again")
    shards = header["shards"]
    if memory_map and shards > 1:
        raise InputError(f"{path}: has {shards} shards, which cannot be mapped; load it with memory_map=False")
    indexes, keys = _read_indexes(path, header, memory_map, whole)
    if stamp(path) != seen:
        return read_gallery(path, memory_map)  # the file was replaced while it was read, so index and labels may differ
    for number, own in enumerate(keys):  # with a wrong key, an image would get the labels of another
        if not np.array_equal(own, arrays["keys"][arrays["keys"] % shards == number]):
            raise InputError(f"{path}: index and labels do not match; build it again")
    return indexes, header, arrays, seen


def _read_archive(path: str | Path, file: IO[bytes]) -> tuple[Any, dict[str, np.ndarray], int, int]:
    """Read header, arrays, checksum and end position of the indexes; damaged files can raise any exception."""
    with np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.zip.infolist()):
            raise ValueError("its archive is compressed, so a few bytes could fill the memory")
        arrays = {name: archive[name] for name in archive.files}
        if unreadable := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{unreadable[0]} is not an array")  # numpy returns bytes for unknown content
        header = json.loads(arrays.pop("header").tobytes())
        if isinstance(header, dict):
            require_not_newer(path, header.get("format"), FORMAT, "a gallery of another version of lreid")
        end = min(part.header_offset for part in archive.zip.infolist())
        return header, arrays, int(arrays.pop(CHECKSUM)), end


def _fault(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> str | None:
    """Describe the first contradiction between header and columns, whose types were checked; None if there is none."""
    if unknown := sorted(header.keys() - {name.removesuffix("?") for name in HEADER}):
        return f"{unknown[0]} is unknown"
    if header["kind"] not in KINDS:
        return f"kind is {header['kind']!r}"
    if header["shards"] < 1:
        return f"shards is {header['shards']}"
    pairs: dict[str, tuple[Any, Any]] = {"recall": (header["recall"], (int, float))}
    pairs |= {f"names.{what}": (names, str) for what, names in header["names"].items()}
    for key, (values, form) in pairs.items():
        if not all(len(pair) == 2 and type(pair[0]) is int and isinstance(pair[1], form) for pair in values):
            return f"{key} is not a list of pairs of a number and its value"
    count = len(header["paths"])
    for name in COLUMNS:
        column = arrays.get(name)
        if column is None:
            return f"it has no {name}"
        if column.shape != (count,) or column.dtype != np.int64:
            return f"{name} has shape {column.shape} and type {column.dtype}, not {(count,)} and int64"
    keys = arrays["keys"]
    first, last = (keys[0], keys[-1]) if count else (0, -1)
    if first < 0 or last >= header["next_key"] or (keys[1:] <= keys[:-1]).any():
        return "keys are not ascending and below next_key"
    if header["next_key"] > MOST_KEYS:
        return f"next_key is {header['next_key']}, above {MOST_KEYS}"
    return None


def _crc32(file: IO[bytes], count: int) -> int:
    """Compute the checksum of the first ``count`` bytes, and leave the file position after them."""
    file.seek(0)
    checksum = 0
    while count > 0 and (block := file.read(min(count, 1 << 20))):
        checksum = zlib.crc32(block, checksum)
        count -= len(block)
    return checksum


def _write_content(file: IO[bytes], indexes: list[Any], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    faiss = import_faiss()
    if len(indexes) == 1:
        faiss.write_index(indexes[0], file.name)
    else:
        writer = faiss.FileIOWriter(file.name)
        for index in indexes:
            faiss.write_index(index, writer)
        del writer  # deletes the faiss writer, so that the file can be closed
    checksum = _crc32(file, os.stat(file.name).st_size)
    text = json.dumps(header | {"format": FORMAT}).encode()
    content: dict[str, Any] = {"header": np.frombuffer(text, dtype=np.uint8), **arrays}
    content[CHECKSUM] = np.array(checksum)
    np.savez(file, **content)


def _read_indexes(
    path: str | Path, header: dict[str, Any], memory_map: bool, whole: bool
) -> tuple[list[Any], list[np.ndarray]]:
    """Read the indexes, each with its keys."""
    faiss, name = import_faiss(), str(path)
    kind = header["kind"] if header["whole"] else "flat"
    try:
        if not whole:
            raise ValueError("its checksum is wrong")
        if header["shards"] == 1:
            indexes = [faiss.read_index(name, faiss.IO_FLAG_MMAP_IFC if memory_map else 0)]
        else:
            reader = faiss.FileIOReader(name)
            indexes = [faiss.read_index(reader) for _ in range(header["shards"])]
        for index in indexes:
            require_kind(index, kind)
        if len({index.d for index in indexes}) > 1:
            raise ValueError("its parts have features of different lengths")
        return indexes, [keys_in(index, kind) for index in indexes]
    except Exception as error:  # faiss raises many kinds of exceptions for damaged files
        if not memory_map:  # a mapped index is not checked, so a damaged size may request any amount of memory
            raise_if_out_of_memory(error, path)
        raise InputError(f"{path}: its index is damaged; build it again") from None
