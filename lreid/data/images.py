"""Read images: one file, or the decoded images of a whole list of records."""

import contextlib
import hashlib
import math
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps
from tqdm import tqdm

from lreid.data.datasets import file_of, image_scheme
from lreid.data.records import Record
from lreid.errors import InputError, OutOfMemory
from lreid.utils.extras import Extra
from lreid.utils.files import write_file
from lreid.utils.reading import naming_damage, require_regular

# The formats that PIL may use, whatever the suffix of a file. Of PIL's other formats, EPS would start Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP") + ("AVIF",) * bool(find_spec("PIL.AvifImagePlugin"))
SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".avif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
HEIF = find_spec("pillow_heif") is not None  # reads the .heic images that phones take
if HEIF:
    FORMATS += ("HEIF",)
    SUFFIXES += (".heic", ".heif")
    Extra("pillow_heif", "heif").register_heif_opener()
DECODED_AHEAD = 512  # maximum number of decoded images that wait to be copied into the cache
SAMPLE = 200  # approximate number of images whose size is read
UPRIGHT = 1.5  # minimum height over width of an upright image, as images of people are
LONGEST_SIDE = 65_535  # maximum pixels per side, as in JPEG; a narrow image may need gigabytes to be resized
TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
MOMENT = 2.0  # seconds before a progress bar appears


class ProgressBar(tqdm):
    """Progress bar of tqdm without tqdm's monitoring thread, because lreid updates its bars often enough."""

    monitor_interval = 0


def images_done(total: int | None, what: str) -> ProgressBar:
    """Create a progress bar that counts images; only the first process of a run shows the bar.

    Args:
        total: number of images, or None if it is unknown.
        what: label of the bar, such as ``reading``.
    """
    silent = True if os.environ.get("RANK", "0") != "0" else None  # None: tqdm shows the bar only in a terminal
    return ProgressBar(total=total, desc=what, unit="image", delay=MOMENT, leave=False, disable=silent)


def read_image(path: str | Path, *, height: int | None = None, width: int | None = None, within: int = 0) -> np.ndarray:
    """Decode an image file, or generate a synthetic image, and resize it.

    PIL decodes the file, because OpenCV does not report a truncated file but fills its missing part with grey. Images
    are resized with PIL's bicubic filter, as in the official code of DMML and DwoPP. The image is rotated by its EXIF
    orientation, and 16-bit grey values become 8-bit values.

    Args:
        path: an image file, or the address of an image without a file (see :mod:`lreid.data.datasets`).
        height, width: new size in pixels; None for both keeps the original size.
        within: see :func:`decode`.

    Returns:
        (H, W, 3) uint8, RGB.

    Raises:
        InputError: the file is missing, empty or damaged, is too large, or has 32-bit grey values.
        ValueError: only one of height and width is given.
    """
    if (height is None) != (width is None):
        raise ValueError("give both height and width, or neither")
    scheme = image_scheme(str(path))
    if scheme is not None and scheme.read is not None:
        image = scheme.read(str(path))
    else:
        _require_file(path)
        image = decode(path, within=within)
    return image if height is None or width is None else fit_image(image, height=height, width=width)


class Size(NamedTuple):
    """Size of an image, by its number of pixels and its ratio of height to width."""

    pixels: float
    ratio: float


def typical_size(records: Sequence[Record]) -> Size | None:
    """Compute the median size of images, from a sample if there are many; None if none can be read.

    Only the headers of image files are read. Unreadable files are skipped here, because decoding them raises an error
    later.
    """
    stride = max(len(records) // SAMPLE, 1)
    sizes = [size for record in records[::stride] if (size := _size(record.path)) is not None]
    return Size(*map(median, zip(*sizes, strict=True))) if sizes else None


def _size(path: str) -> Size | None:
    """Return the size of an image after its EXIF rotation, or None if the file cannot be read."""
    try:
        require_regular(path)
        with Image.open(path) as image:
            width, height = image.size
            turned = image.getexif().get(ExifTags.Base.Orientation) in TURNED
        return Size(height * width, width / height if turned else height / width)
    except Exception:  # PIL raises many kinds of exceptions for damaged files
        return None


def fit_image(image: np.ndarray, *, height: int, width: int) -> np.ndarray:
    """Resize an RGB image (h, w, 3) uint8 to (height, width, 3) with PIL's bicubic filter."""
    if image.shape[:2] == (height, width):
        return image
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))


def require_files(records: Iterable[Record]) -> None:
    """Check that the image files of all records exist, without opening them.

    Raises:
        InputError: a file is missing or empty; the message names the first such file.
    """
    with _naming_skip_bad():
        for record in records:
            if (file := file_of(record.path)) is not None:
                _require_file(file)


class Described(Sequence[np.ndarray]):
    """A sequence of images, each with a record.

    Attributes:
        records: records in the order of the images.
    """

    records: tuple[Record, ...]

    @property
    def pids(self) -> np.ndarray:
        """Identities (n,) int64 of the images."""
        return np.array([record.pid for record in self.records], np.int64)

    @property
    def camids(self) -> np.ndarray:
        """Cameras (n,) int64 of the images."""
        return np.array([record.camid for record in self.records], np.int64)

    def __len__(self) -> int:
        return len(self.records)


class Images(Described):
    """The images of a list of records, decoded and resized to the same size.

    If the images fit into ``cache_gib``, threads decode all images into one array. If the images do not fit, an image
    is decoded each time it is read, and the constructor only checks that all files exist. With ``skip_bad``, the
    constructor also decodes every file once to find bad files. Cached images are read-only, so that no augmentation can
    change them. Forked processes share the cached images. Changes of the files do not change the cached images.

    Args:
        height, width: size of the images in pixels.
        cache_gib: maximum size of the images in memory, in GiB.
        skip_bad: whether to leave out missing, empty and damaged files. Without ``skip_bad``, a missing, empty or
            damaged file raises an error.
        workers: number of decoding threads; None means one per core.

    Attributes:
        records: the records of readable images, in the given order; ``self[i]`` is the image of ``records[i]``.
        skipped: paths of the images that were left out.
        cached_gib: size of the cached images in memory, in GiB.

    Raises:
        InputError: a file is missing, empty or damaged; with ``skip_bad``, this error only occurs if no image can be
            read.
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

    @cached_property
    def digests(self) -> list[bytes]:
        """Hash of the pixels of each image; images that are not cached are decoded again."""
        starts = range(0, len(self), DECODED_AHEAD)
        return [_digest(image) for start in starts for image in self[start : start + DECODED_AHEAD]]

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """Return the image of ``records[index]`` as (H, W, 3) uint8 RGB, or (n, H, W, 3) for a slice or (n,) rows."""
        if self._cache is not None:
            return self._cache[index]
        if isinstance(index, (slice, np.ndarray)):
            rows = np.arange(len(self))[index]
            if len(rows) > 1:  # PIL releases the interpreter lock while it decodes
                with decoding_threads(os.cpu_count()) as pool:
                    return np.stack(list(pool.map(self.__getitem__, rows)))
            return np.stack([self[i] for i in rows])
        with _naming_skip_bad():
            return read_image(self.records[index].path, height=self.height, width=self.width)


@contextlib.contextmanager
def _naming_skip_bad() -> Iterator[None]:
    """Add the advice to pass ``skip_bad=True`` to errors about unreadable images."""
    try:
        yield
    except OutOfMemory:
        raise
    except InputError as error:
        raise InputError(f"{error} (skip_bad=True leaves such files out of a list)") from None


def copies(queries: Sequence[Record], gallery: Sequence[Record]) -> list[str]:
    """List the paths of queries that have the pixels of a gallery image; all images are decoded and scaled down."""
    size: dict[str, Any] = {"height": 128, "width": 64, "skip_bad": True, "workers": None}
    try:
        there = {_digest(image) for _, image in _decoded(gallery, **size)}
        return [queries[place].path for place, image in _decoded(queries, **size) if _digest(image) in there]
    except OutOfMemory:
        raise
    except InputError:  # no image can be read
        return []


def _digest(image: np.ndarray) -> bytes:
    return hashlib.sha256(image.tobytes()).digest()


def unreadable(records: Sequence[Record]) -> list[str]:
    """List the paths of images that are missing, empty or damaged.

    Raises:
        InputError: every image is missing, empty or damaged.
    """
    read = {index for index, _ in _decoded(records, height=1, width=1, skip_bad=True, workers=None)}
    return [record.path for index, record in enumerate(records) if index not in read]


@contextlib.contextmanager
def decoding_threads(count: int | None) -> Iterator[ThreadPoolExecutor]:
    """Create a pool of decoding threads; the context ends only after all threads of the pool have ended.

    A thread holds a lock of OpenCV while it ends. A loader process that is forked while a thread ends would wait for
    this lock forever.
    """
    numbers: list[int] = []
    with ThreadPoolExecutor(count, initializer=lambda: numbers.append(threading.get_native_id())) as pool:
        yield pool
    end = time.monotonic() + 10  # when to stop waiting: a new thread may have got the number of an old one
    while any(os.path.exists(f"/proc/self/task/{number}") for number in numbers) and time.monotonic() < end:
        time.sleep(0.0005)


def _decoded(
    records: Sequence[Record], *, height: int, width: int, skip_bad: bool, workers: int | None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index and the image of every record; with ``skip_bad``, leave out unreadable images."""
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
    except OutOfMemory:  # the image may be intact
        raise
    except InputError as fault:
        return fault


def _require_file(path: str | Path) -> None:
    require_regular(path)
    with naming_damage(path, "image cannot be opened", "replace it", "image"):
        status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path}: is a folder, not an image; name the images in it")
    if status.st_size == 0:
        raise InputError(f"{path}: image file is empty (0 bytes); replace it")


def decode(path: str | Path, content: BytesIO | None = None, *, within: int = 0) -> np.ndarray:
    """Decode an image file to (H, W, 3) uint8 RGB.

    Args:
        path: the image file.
        content: content of the file. With ``content``, lreid does not read ``path`` and uses it only in messages.
        within: maximum pixels per side, or 0 for no maximum. In a larger image, lreid skips pixels, so that a thumbnail
            does not need several copies of all pixels.

    Raises:
        InputError: the image is damaged, has 32-bit grey values, or is larger than PIL's limit (178,956,970 pixels) or
            than ``LONGEST_SIDE``.
    """
    damage = naming_damage(path, "image cannot be decoded", "replace it")
    with damage, Image.open(content or path, formats=FORMATS) as image:
        if max(image.size) > LONGEST_SIDE:
            raise ValueError(f"{image.width} x {image.height} pixels, more than {LONGEST_SIDE:,} per side")
        if within:
            image.thumbnail((within, within), Image.Resampling.NEAREST)  # PIL can average only some kinds of pixels
        image.load()
        with contextlib.suppress(Exception):  # with a damaged EXIF block the image is not rotated
            ImageOps.exif_transpose(image, in_place=True)
        return rgb_of(image)


def rgb_of(image: Image.Image) -> np.ndarray:
    """Convert a PIL image to (H, W, 3) uint8 RGB; 16-bit grey values become 8-bit values, and transparency black.

    Raises:
        ValueError: the image has 32-bit grey values.
    """
    # PIL's own conversion would clip grey values at 255 instead of scaling them. PIL opens 16-bit grey images in the
    # mode "I;16…"; it opens PPM files, and in older versions PNG files, in the mode "I".
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        raise ValueError("32-bit grey values, whose range is unknown; convert it to 8 bits")
    if image.has_transparency_data:  # hidden colours of transparent pixels must not change a feature
        image = Image.alpha_composite(Image.new("RGBA", image.size, "black"), image.convert("RGBA"))
    return np.array(image.convert("RGB"))


def write_image(path: Path, image: Image.Image, kind: str) -> None:
    """Write an image as ``"PNG"`` or ``"JPEG"``.

    Raises:
        InputError: the disk is full or the folder cannot be written to.
    """
    try:
        write_file(path, lambda file: image.save(file, kind))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); free some space, then run this again") from None
