"""The file of a gallery: one faiss index or several, then a zip archive with everything faiss has no place for.

One file, so that one rename replaces it whole. faiss stops reading at the end of its index and can map that part
into memory; a zip archive is found from its end. So ``faiss.read_index`` and ``unzip -l`` both open it.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.retrieval.index import import_faiss

FORMAT = 1
Stamp = tuple[int, ...]  # which file this is, and in which state


def stamp(path: str | Path) -> Stamp:
    """Tells whether a file was replaced or changed.

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def unchanged(path: str | Path, seen: Stamp | None) -> Iterator[None]:
    """While this lasts, the file is as it was when it was read, and no other process that asks here replaces it.

    Raises:
        InputError: somebody has replaced it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise InputError(f"{path}: was taken away while this command worked; nothing was written") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if stamp(path) != seen:  # also if it was replaced while this process waited for the lock
            raise InputError(
                f"{path}: another process has changed it in the meantime; nothing was written, run this again"
            )
        yield
    finally:
        os.close(descriptor)


def write_gallery(
    path: str | Path,
    indexes: list[Any],
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    seen: Stamp | None = None,
) -> Stamp:
    """Writes through a temporary file beside ``path``, so that a reader never sees half a gallery.

    Args:
        path: the file; one that exists is replaced when the new one is complete.
        indexes: faiss indexes.
        header: values that JSON can hold.
        arrays: numeric arrays by name.
        seen: of the file that these were read from; if another process has replaced that, nothing is written.

    Returns:
        The stamp of the new file.

    Raises:
        InputError: the folder cannot be written to, the disk is full, or the file is not the one that was read; what
            was there before stays.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        temporary = Path(name)
        _write_indexes(indexes, name)
        with open(temporary, "r+b") as file:
            file.seek(0, os.SEEK_END)
            text = json.dumps(header | {"format": FORMAT}).encode()
            kept: dict[str, Any] = {"header": np.frombuffer(text, dtype=np.uint8), **arrays}
            np.savez(file, **kept)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        if seen is None:
            temporary.replace(path)
            return stamp(path)
        with unchanged(path, seen):
            temporary.replace(path)
            return stamp(path)
    except (OSError, RuntimeError) as error:  # faiss reports a failed write as a RuntimeError
        raise InputError(f"{path}: cannot be written ({error}); what was saved before is whole") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def read_gallery(
    path: str | Path, memory_map: bool
) -> tuple[list[Any], dict[str, Any], dict[str, np.ndarray], Stamp]:
    """Indexes, header, arrays and stamp of a file that :func:`write_gallery` wrote.

    Args:
        path: the file.
        memory_map: leave the index on disk. It must not be changed then: faiss would write to read-only memory.

    Raises:
        InputError: the file is missing, cut short, of another version or no gallery at all; or it has shards, which
            cannot be mapped.
    """
    try:
        seen = stamp(path)
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; build a gallery first") from None
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not a gallery, or cut short ({error}); build it again") from None
    if header.pop("format", None) != FORMAT:
        raise InputError(f"{path}: a gallery of another version of lreid; build it again")
    shards = header.get("shards", 1)
    if memory_map and shards > 1:
        raise InputError(
            f"{path}: has {shards} shards, which cannot be mapped; load it with memory_map=False"
        )
    try:
        indexes = _read_indexes(str(path), shards, memory_map)
    except RuntimeError:
        raise InputError(f"{path}: its index is damaged; build it again") from None
    if stamp(path) != seen:
        return read_gallery(path, memory_map)  # index and labels may be of two files; the new one is whole
    if sum(index.ntotal for index in indexes) != len(arrays["keys"]):
        raise InputError(f"{path}: index and labels do not belong together; build it again")
    return indexes, header, arrays, seen


def _write_indexes(indexes: list[Any], name: str) -> None:
    faiss = import_faiss()
    if len(indexes) == 1:
        faiss.write_index(indexes[0], name)
        return
    writer = faiss.FileIOWriter(name)
    for index in indexes:
        faiss.write_index(index, writer)


def _read_indexes(name: str, count: int, memory_map: bool) -> list[Any]:
    faiss = import_faiss()
    if count == 1:
        return [faiss.read_index(name, faiss.IO_FLAG_MMAP_IFC if memory_map else 0)]
    reader = faiss.FileIOReader(name)
    return [faiss.read_index(reader) for _ in range(count)]
