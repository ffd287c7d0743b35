"""Read images: one file, or the decoded images of a whole list of records."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from lreid.data.layout import HEIF
from lreid.data.records import Record
from lreid.data.schemes import file_of, image_scheme
from lreid.errors import InputError, OutOfMemory, refuse_out_of_memory
from lreid.extras import Extra
from lreid.files import write_file
from lreid.progress import images_done
from lreid.reading import require_regular

# What PIL may take a file for, whatever its name: it has others, of which EPS would start Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP") + ("AVIF",) * bool(find_spec("PIL.AvifImagePlugin"))
if HEIF:
    FORMATS += ("HEIF",)
    Extra("pillow_heif", "heif").register_heif_opener()
DECODED_AHEAD = 512  # images that wait in memory to be put into a cache


def read_image(path: str | Path, *, height: int | None = None, width: int | None = None) -> np.ndarray:
    """Decodes an image file, or generates a synthetic one, and resizes it.

    PIL decodes it, since OpenCV fills the missing part of a truncated file with grey, without an error. The
    bicubic filter of PIL is that of the official code of DMML and DwoPP. Images are rotated as their EXIF
    orientation says, and grey values of 16 bits become 8.

    Args:
        path: an image file, or the address of one of the :mod:`lreid.data.schemes`, such as a synthetic image.
        height, width: size in pixels to resize to; both or neither.

    Returns:
        (H, W, 3) uint8, RGB.

    Raises:
        InputError: the file is missing, empty or damaged, or has grey values of 32 bits.
        ValueError: only one of height and width is given.
    """
    if (height is None) != (width is None):
        raise ValueError("give both height and width, or neither")
    scheme = image_scheme(str(path))
    if scheme is not None and scheme.read is not None:
        image = scheme.read(str(path))
    else:
        _require_file(path)
        image = decode(path)
    return image if height is None or width is None else fit_image(image, height=height, width=width)


def fit_image(image: np.ndarray, *, height: int, width: int) -> np.ndarray:
    """Resizes an RGB image (h, w, 3) uint8 to (height, width, 3) with PIL's bicubic filter."""
    if image.shape[:2] == (height, width):
        return image
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))


def require_files(records: Iterable[Record]) -> None:
    """Looks, without opening them, whether the images of all records are there.

    Raises:
        InputError: a file is missing or empty; the first one is named.
    """
    with _naming_skip_bad():
        for record in records:
            if (file := file_of(record.path)) is not None:
                _require_file(file)


class Images(Sequence[np.ndarray]):
    """The images of a list of records, decoded and resized.

    Threads decode them once into one array where that fits in ``cache_gib``. Otherwise each image is decoded whenever
    it is needed. Then the files are only checked to exist beforehand; with ``skip_bad`` all of them are decoded once,
    to know which to leave out. Cached images are read-only, so that no augmentation can change them, and shared by all
    processes that are forked from this one. A file that changes later is not read again.

    Args:
        records: what to read.
        height, width: size in pixels that every image gets.
        cache_gib: size up to which the images are kept in memory, in GiB.
        skip_bad: leave out missing, empty and damaged files instead of raising.
        workers: decoding threads; None means one for every core.

    Attributes:
        records: the records whose images could be read, in the order given; ``self[i]`` belongs to
            ``records[i]``.
        skipped: paths that were left out.
        cached_gib: memory that the decoded images take, in GiB.

    Raises:
        InputError: a file is missing, empty or damaged; with ``skip_bad`` only where no image is left.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        height: int,
        width: int,
        cache_gib: float = 4.0,
        skip_bad: bool = False,
        workers: int | None = None,
    ) -> None:
        self.height, self.width = height, width
        self._cache: np.ndarray | None = None  # (n, H, W, 3) uint8
        self.cached_gib = 0.0
        shape = (len(records), height, width, 3)
        decoded = _decoded(records, height=height, width=width, skip_bad=skip_bad, workers=workers)
        if math.prod(shape) <= cache_gib * 2**30:
            readable: list[int] = []
            self._cache = np.empty(shape, np.uint8)
            for index, image in decoded:
                self._cache[len(readable)] = image
                readable.append(index)
            self._cache = self._cache[: len(readable)]
            self._cache.flags.writeable = False
            self.cached_gib = self._cache.nbytes / 2**30
        elif skip_bad:
            readable = [index for index, _ in decoded]
        else:
            require_files(records)
            readable = list(range(len(records)))
        self.records = tuple(records[i] for i in readable)
        left_out = set(range(len(records))).difference(readable)
        self.skipped = [records[i].path for i in sorted(left_out)]

    @property
    def pids(self) -> np.ndarray:
        """Identities (n,) int64."""
        return np.array([record.pid for record in self.records], np.int64)

    @property
    def camids(self) -> np.ndarray:
        """Cameras (n,) int64."""
        return np.array([record.camid for record in self.records], np.int64)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int | slice) -> np.ndarray:
        """The image of ``records[index]``, (H, W, 3) uint8, RGB; (n, H, W, 3) for a slice."""
        if self._cache is not None:
            return self._cache[index]
        if isinstance(index, slice):
            rows = range(len(self))[index]
            if len(rows) > 1:  # PIL releases the interpreter while it decodes
                with decoding_threads(os.cpu_count()) as pool:
                    return np.stack(list(pool.map(self.__getitem__, rows)))
            return np.stack([self[i] for i in rows])
        with _naming_skip_bad():
            return read_image(self.records[index].path, height=self.height, width=self.width)


@contextlib.contextmanager
def _naming_skip_bad() -> Iterator[None]:
    """Names, in errors of images that cannot be read, the argument that leaves them out."""
    try:
        yield
    except OutOfMemory:
        raise
    except InputError as error:
        raise InputError(f"{error} (skip_bad=True leaves such files out of a list)") from None


def unreadable(records: Sequence[Record]) -> list[str]:
    """Paths of images that are missing, empty or damaged.

    Raises:
        InputError: all are.
    """
    read = {index for index, _ in _decoded(records, height=1, width=1, skip_bad=True, workers=None)}
    return [record.path for index, record in enumerate(records) if index not in read]


@contextlib.contextmanager
def decoding_threads(count: int | None) -> Iterator[ThreadPoolExecutor]:
    """Threads to decode with, which the system has ended, too, when this ends.

    A thread holds a lock of OpenCV while it goes; a loader process that is forked in that moment would wait for it for
    ever.
    """
    numbers: list[int] = []
    with ThreadPoolExecutor(count, initializer=lambda: numbers.append(threading.get_native_id())) as pool:
        yield pool
    end = time.monotonic() + 10  # its number may have been given to a thread of others
    while any(os.path.exists(f"/proc/self/task/{number}") for number in numbers) and time.monotonic() < end:
        time.sleep(0.0005)


def _decoded(
    records: Sequence[Record], *, height: int, width: int, skip_bad: bool, workers: int | None
) -> Iterator[tuple[int, np.ndarray]]:
    """The index and the image of every record, or of those that can be read where ``skip_bad``."""
    read, first_fault, any_read = partial(_read_or_fault, height=height, width=width), None, False
    with decoding_threads(workers or os.cpu_count()) as pool, images_done(len(records), "reading") as bar:
        for start in range(0, len(records), DECODED_AHEAD):
            for index, result in enumerate(pool.map(read, records[start : start + DECODED_AHEAD]), start):
                bar.update()
                if isinstance(result, np.ndarray):
                    any_read = True
                    yield index, result
                elif not skip_bad:
                    with _naming_skip_bad():
                        raise result
                elif first_fault is None:
                    first_fault = result
    if first_fault is not None and not any_read:
        raise InputError(f"none of the {len(records)} images can be read; the first: {first_fault}")


def _read_or_fault(record: Record, *, height: int, width: int) -> np.ndarray | InputError:
    try:
        return read_image(record.path, height=height, width=width)
    except OutOfMemory:  # the image may be whole
        raise
    except InputError as fault:
        return fault


def _require_file(path: str | Path) -> None:
    require_regular(path)
    try:
        size = os.stat(path).st_size
    except (OSError, ValueError) as error:  # a NUL in the path
        refuse_out_of_memory(error, path)
        reason = getattr(error, "strerror", error)
        raise InputError(f"{path}: image cannot be opened ({reason}); replace it") from None
    if size == 0:
        raise InputError(f"{path}: image file is empty (0 bytes); replace it")


def decode(path: str | Path, content: BytesIO | None = None) -> np.ndarray:
    """Decodes an image file, or the content of one, whose path errors name: (H, W, 3) uint8 RGB.

    Raises:
        InputError: it is damaged, or has grey values of 32 bits.
    """
    try:
        with Image.open(content or path, formats=FORMATS) as image:
            image.load()
            with contextlib.suppress(Exception):  # a damaged EXIF block leaves the pixels as they lie
                ImageOps.exif_transpose(image, in_place=True)
            return rgb_of(image)
    except Exception as error:  # a damaged file makes PIL's decoders raise nearly anything
        refuse_out_of_memory(error, path)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: image cannot be decoded ({reason}); replace it") from None


def rgb_of(image: Image.Image) -> np.ndarray:
    """An image of PIL as (H, W, 3) uint8; grey values of 16 bits become 8.

    Raises:
        ValueError: it has grey values of 32 bits.
    """
    # PIL's own conversion would not scale deeper grey values, but cut them off at 255.
    # PIL opens grey of 16 bits as I;16…, or as I: PPM files, and PNG files in older versions.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        raise ValueError("grey values of 32 bits, whose range is not known; convert it to 8 bits")
    return np.array(image.convert("RGB"))


def write_image(path: Path, image: Image.Image, kind: str) -> None:
    """Writes an image as ``"PNG"`` or ``"JPEG"``.

    Raises:
        InputError: the disk is full or the folder cannot be written to.
    """
    try:
        write_file(path, lambda file: image.save(file, kind))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); free some space, then run this again") from None
