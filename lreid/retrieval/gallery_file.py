"""The file of a gallery: a faiss index, and after it a zip archive with everything faiss has no place for.

One file, so that one rename replaces it whole. faiss stops reading at the end of its index and can map that part
into memory; a zip archive is found from its end. So ``faiss.read_index`` and ``unzip -l`` both open it.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.retrieval.index import import_faiss

FORMAT = 1


def write_gallery(
    path: str | Path, index: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Writes through a temporary file beside ``path``, so that a reader never sees half a gallery.

    Args:
        path: the file; one that exists is replaced when the new one is complete.
        index: a faiss index.
        header: values that JSON can hold.
        arrays: numeric arrays by name.

    Raises:
        InputError: the folder cannot be written to or the disk is full; what was there before stays.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        temporary = Path(name)
        import_faiss().write_index(index, name)
        with open(temporary, "r+b") as file:
            file.seek(0, os.SEEK_END)
            text = json.dumps(header | {"format": FORMAT}).encode()
            np.savez(file, header=np.frombuffer(text, dtype=np.uint8), **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:  # faiss reports a failed write as a RuntimeError
        raise InputError(f"{path}: cannot be written ({error}); what was saved before is whole") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def read_gallery(path: str | Path, memory_map: bool) -> tuple[Any, dict[str, Any], dict[str, np.ndarray]]:
    """Index, header and arrays of a file that :func:`write_gallery` wrote.

    Args:
        path: the file.
        memory_map: leave the index on disk. It must not be changed then: faiss would write to read-only memory.

    Raises:
        InputError: the file is missing, cut short, of another version or no gallery at all.
    """
    faiss = import_faiss()
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; build a gallery first") from None
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not a gallery, or cut short ({error}); build it again") from None
    if header.pop("format", None) != FORMAT:
        raise InputError(f"{path}: a gallery of another version of lreid; build it again")
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if memory_map else 0)
    except RuntimeError:
        raise InputError(f"{path}: its index is damaged; build it again") from None
    if index.ntotal != len(arrays["keys"]):
        raise InputError(f"{path}: index and labels do not belong together; build it again")
    return index, header, arrays
