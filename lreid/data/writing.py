"""Write images of data sets; files and folders get their names when their content is complete."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from PIL import Image

from lreid.errors import InputError
from lreid.files import files_below, list_folder, require_replaceable

logger = logging.getLogger("lreid")


MARK = ".lreid"  # a file in folders that are being filled


@contextmanager
def folder_at_once(folder: Path, *, empty: bool = False) -> Iterator[Path | None]:
    """A folder to fill that gets its name when all is in it; None where it has it already.

    Args:
        folder: called ``FOLDER.unfinished`` until then.
        empty: begin with an empty folder; otherwise it holds what an attempt that was killed has written.

    Raises:
        InputError: to begin with an empty one, a ``FOLDER.unfinished`` would have to be deleted that is not of lreid.
        OSError: it cannot be made; what to do about it the caller knows.
    """
    if folder.is_dir():
        logger.info("%s: there already", folder)
        yield None
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    mark = unfinished / MARK
    if empty and files_below(unfinished) and not mark.exists():
        raise InputError(f"{unfinished}: was not made by lreid, so it is not deleted; move it away")
    for path in list_folder(unfinished) if empty else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()
    unfinished.mkdir(parents=True, exist_ok=True)
    mark.touch()
    yield unfinished
    for left_over in unfinished.rglob(".*.part"):
        left_over.unlink()
    unfinished.rename(folder)
    (folder / MARK).unlink()


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file under another name and renames it; unlike lreid.files it does not wait for the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        require_replaceable(path)
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
