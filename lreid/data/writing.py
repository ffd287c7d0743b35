"""Write images of data sets; files and folders get their names when their content is complete."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from PIL import Image

from lreid.errors import InputError

logger = logging.getLogger("lreid")


@contextmanager
def folder_at_once(folder: Path) -> Iterator[Path | None]:
    """A folder to fill that gets its name when all is in it; None where it has it already.

    Raises:
        OSError: it cannot be made; what to do about it the caller knows.
    """
    if folder.is_dir():
        logger.info("%s: there already", folder)
        yield None
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    yield unfinished
    for left_over in unfinished.rglob("*.part"):
        left_over.unlink()
    unfinished.rename(folder)


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file under another name and renames it; unlike lreid.files it does not wait for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            write(file)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_image(path: Path, image: Image.Image, kind: str) -> None:
    """Writes an image as ``"PNG"`` or ``"JPEG"``.

    Raises:
        InputError: the disk is full or the folder cannot be written to.
    """
    try:
        write_file(path, lambda file: image.save(file, kind))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); free some space, then run this again") from None
