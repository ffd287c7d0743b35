"""Files that are whole or not there: atomic writing, and reading tensors without running code from them."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from lreid.errors import InputError


def write_atomically(
    path: str | Path, write: Callable[[BinaryIO], Any], *, previous: Path | None = None
) -> None:
    """Writes a file through a temporary one beside it, so that a reader never sees half of it.

    Args:
        path: the file; one that exists is replaced when the new one is complete.
        write: called with the open binary file.
        previous: what is replaced stays under this name.

    Raises:
        InputError: the folder cannot be written to or the disk is full; what was there before stays.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        if previous is not None and path.exists():
            path.replace(previous)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        reason = str(error)
        if isinstance(error, RuntimeError):  # torch.save hides why a write failed, mostly a full disk
            reason = (
                f"the write broke off; {shutil.disk_usage(path.parent).free >> 20} MiB are free on the disk"
            )
        raise InputError(
            f"{path}: cannot be written ({reason}); what was saved before is whole: "
            "free some space or mend the permissions, then go on with --resume"
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes UTF-8 text with :func:`write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def read_tensors(path: str | Path) -> dict[str, Any]:
    """What ``torch.save`` wrote, on the CPU. Only tensors and plain values are loaded, never code.

    ``torch.save`` writes a zip archive with a checksum of every part, which ``torch.load`` does not look at: here they
    are compared, so that a file that has changed on its way is refused.

    Raises:
        InputError: the file is missing, cut short, or holds something else.
    """
    try:
        _compare_checksums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a checkpoint file in it") from None
    except Exception as error:  # torch reports damage in a dozen ways
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{path}: cannot be loaded as tensors: damaged or of another kind ({reason})"
        ) from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, not a checkpoint or a state dict")
    return content


def _compare_checksums(path: str | Path) -> None:
    if not zipfile.is_zipfile(path):  # cut short, or in the format of torch before 1.6
        return
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is wrong")
