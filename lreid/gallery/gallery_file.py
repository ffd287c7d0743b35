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
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from lreid.errors import InputError, raise_if_out_of_memory
from lreid.gallery.shards import keys_in, require_kind
from lreid.retrieval.faiss_library import INDEX_KINDS, import_faiss, reason_of
from lreid.utils.files import (
    make_folder,
    only_one_process,
    remove_leftovers,
    require_replaceable,
    sync_file,
    unfinished,
)
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
    str: None,
}
LABEL_COLUMNS = ("keys", "ids", "cams", "times")
CHECKSUM = "index_crc32"  # name of the array that contains the checksum of the indexes
MOST_KEYS = 2**32  # maximum number of images ever added, because a filter has one bit per image
Stamp = tuple[int, ...]  # identity and state of a file, as the operating system reports them


def stamp(path: str | Path | int) -> Stamp:
    """Return a value that changes when a file, given by path or descriptor, is replaced or changed."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def unchanged(path: str | Path, seen: Stamp | None) -> Iterator[None]:
    """Lock a file within a context, so that no other process of lreid can replace it; its stamp must be ``seen``."""
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one_process(path))
        except FileNotFoundError:
            raise InputError(f"{path}: was deleted while this command ran; nothing was written") from None
        if stamp(path) != seen:  # also True if the file was replaced while this process waited for the lock
            raise InputError(f"{path}: another process has changed the file; nothing was written, run this again")
        yield


def write_gallery(
    path: Path,
    indexes: list[Any],
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    seen: Stamp | None = None,
    *,
    new: bool = False,
    read_back: bool = False,
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
        read_back: whether to read the new file before it replaces the old one.

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
            sync_file(file, path)
            if read_back:  # the error names the new file; the old one is intact
                read_gallery(file.name, memory_map=len(indexes) == 1)
            written = stamp(file.fileno())
            if new:
                try:
                    os.link(file.name, path)  # of several processes that create the same name, only one succeeds
                except FileExistsError:
                    raise InputError(f"{path}: already exists; another process has created it") from None
            else:
                with nullcontext() if seen is None else unchanged(path, seen):
                    os.replace(file.name, path)
    except (OSError, RuntimeError) as error:  # faiss reports a failed write as a RuntimeError
        raise_if_out_of_memory(error, path)
        raise InputError(f"{path}: cannot be written ({error}); the previous version is intact") from None
    return written


def require_gallery(path: Path) -> None:
    """Refuse a file that does not look like a gallery, before lreid replaces or deletes it."""
    with suppress(OSError, zipfile.BadZipFile):
        if path.is_file():  # opening a pipe would block
            with zipfile.ZipFile(path) as archive:
                if {"header.npy", f"{CHECKSUM}.npy"} <= {*archive.namelist()}:
                    return
    raise InputError(f"{path}: is not a gallery or is damaged, so it is not replaced; move it away")


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
            if not memory_map and checksum != _crc32(file, end):
                raise ValueError("the checksum of its index is wrong")
        _check(header, arrays)
        kind, keys = header["kind"] if header["whole"] else "flat", arrays["keys"]  # flat until the gallery is complete
        indexes = _read_indexes(path, kind, header["shards"], memory_map)
        if stamp(path) != seen:
            return read_gallery(path, memory_map)  # the file was replaced meanwhile, so index and labels may differ
        for number, index in enumerate(indexes):  # with a wrong key, an image would get the labels of another
            if not np.array_equal(keys_in(index, kind), keys[keys % len(indexes) == number]):
                raise ValueError("index and labels do not match")
    except Exception as error:  # zipfile, numpy and faiss raise many kinds of exceptions for damaged files
        raise_if_unreadable(error, path, advice="build a gallery first")
        reason = reason_of(error) if isinstance(error, RuntimeError) else error
        raise InputError(f"{path}: not a gallery, or damaged ({reason}); build it again") from None
    return indexes, header, arrays, seen


def _read_archive(path: str | Path, file: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray], int, int]:
    """Read header, arrays, checksum and end position of the indexes."""
    with np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        version = header.pop("format", None)
        require_not_newer(path, version, FORMAT, "a gallery of another version of lreid")
        if version != FORMAT:
            raise InputError(f"{path}: a gallery of another version of lreid; build it again")
        end = min(part.header_offset for part in archive.zip.infolist())
        return header, arrays, int(arrays.pop(CHECKSUM)), end


def _check(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raise ValueError if a value of the header or a column is missing or impossible."""
    if fault := misfit(header, HEADER):
        raise ValueError(fault)
    if header["kind"] not in INDEX_KINDS or header["shards"] < 1:
        raise ValueError(f"kind is {header['kind']!r} and shards is {header['shards']}")
    for name, pairs in {"recall": header["recall"], **header["names"]}.items():
        kinds = (int, (int, float) if name == "recall" else str)
        if not all(len(pair) == 2 and all(map(isinstance, pair, kinds)) for pair in pairs):
            raise ValueError(f"{name} is not a list of pairs of a number and its value")
    count, next_key = len(header["paths"]), header["next_key"]
    for name in LABEL_COLUMNS:
        if name not in arrays or arrays[name].shape != (count,) or arrays[name].dtype != np.int64:
            raise ValueError(f"{name} are not {count} integers")
    if next_key > MOST_KEYS or (np.diff(arrays["keys"], prepend=-1, append=next_key) <= 0).any():
        raise ValueError(f"keys are not ascending and below next_key, or next_key {next_key} is above {MOST_KEYS}")


def _read_indexes(path: str | Path, kind: str, shards: int, memory_map: bool) -> list[Any]:
    """Read the parts of the index."""
    faiss = import_faiss()
    if memory_map and shards > 1:
        raise InputError(f"{path}: has {shards} shards, which cannot be mapped; load it with memory_map=False")
    if memory_map:
        indexes = [faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)]
    else:
        reader = faiss.FileIOReader(str(path))
        indexes = [faiss.read_index(reader) for _ in range(shards)]
    for index in indexes:
        require_kind(index, kind)
        if index.d != indexes[0].d:
            raise ValueError("its parts have features of different lengths")
    return indexes


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
    writer = faiss.FileIOWriter(file.name)
    for index in indexes:
        faiss.write_index(index, writer)
    del writer  # deletes the faiss writer, so that the file can be closed
    checksum = _crc32(file, os.stat(file.name).st_size)
    text = json.dumps(header | {"format": FORMAT}).encode()
    content: dict[str, Any] = {"header": np.frombuffer(text, dtype=np.uint8), **arrays}
    content[CHECKSUM] = np.array(checksum)
    np.savez(file, **content)
