"""Keep decoded images that do not fit into memory in a file that is mapped into it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from lreid.data.records import Record
from lreid.data.schemes import file_of
from lreid.errors import InputError
from lreid.files import remove_leftovers, write_atomically
from lreid.reading import require_regular, sealed, unsealed

logger = logging.getLogger("lreid")


@dataclass
class Mapped:
    """Images in a mapped file, each of which is compared with its checksum when it is first used.

    So damage is seen before it counts, and a start reads nothing of a file of many GiB. Processes that are forked from
    this one share what was compared.

    Attributes:
        path: named in warnings.
        images: (n, H, W, 3) uint8, read-only.
        kept: their positions in the records.
        checksums: CRC-32 of each image (n,) uint32; empty where nothing needs to be compared.
    """

    path: str | Path
    images: np.ndarray
    kept: list[int]
    checksums: np.ndarray
    _whole: np.ndarray = field(init=False, repr=False)  # (n,) bool
    _warned: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._whole = np.frombuffer(mmap.mmap(-1, len(self.images)), np.bool_)
        self._whole[:] = not len(self.checksums)

    def is_whole(self, index: int | slice) -> bool:
        """Whether one image, or all of a slice, are as they were stored; the first time that they are not, warns."""
        if self._whole[index].all():
            return True
        rows = np.atleast_1d(np.arange(len(self.images))[index])
        for row in rows[~self._whole[rows]]:
            self._whole[row] = zlib.crc32(self.images[row]) == self.checksums[row]
        whole = bool(self._whole[rows].all())
        if not (whole or self._warned):
            self._warned = True
            logger.warning("%s: has damaged images, decoded again; delete it to have it made again", self.path)
        return whole


@dataclass(frozen=True)
class DiskCache:
    """A folder for the decoded images of lists of records, which none but the user can read.

    The file of a list has no name: the operating system frees it as soon as the last process that works with it
    lets go of it or is killed, so that nothing of a past task stays. With ``keep`` it is called by a fingerprint of
    path, size and time of change of every image and of the input size, and serves later runs until one of these
    changes. Where there is no room, a warning says so and images are decoded whenever they are needed.

    Args:
        folder: made where it does not exist; empty for no cache on disk.
        gib: size up to which it is filled.
        keep: leave files there, for images that are used again in later runs, such as those of test sets.
    """

    folder: str | Path = ""
    gib: float = 50.0
    keep: bool = False

    def find(self, records: Sequence[Record], *, height: int, width: int) -> Mapped | None:
        """What an earlier run left of these images; None where that is nothing, damaged, or they have changed since."""
        path = self._path(records, height, width)
        if path is None or not os.path.exists(path):
            return None
        require_regular(path)
        try:
            with open(path, "rb") as file:
                mapped = _map(file, path, height, width)
        except OSError:
            return None
        if mapped is None or mapped.kept[-1] >= len(records):
            logger.warning("%s: is damaged; its images are decoded again", path)
            return None
        return mapped

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be added; warns where they may not."""
        if not self.folder:
            return False
        folder = Path(self.folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from None
        remove_leftovers(folder)
        taken = 0
        for file in folder.glob("*.images"):
            with contextlib.suppress(FileNotFoundError):  # another run has removed it meanwhile
                taken += file.stat().st_size
        free = shutil.disk_usage(folder).free
        if taken + size <= self.gib * 2**30 and size < free:
            return True
        logger.warning(
            "%s: no room for %.2f GiB of decoded images (%.2f taken of the %g allowed, %.2f free on the disk): "
            "they are decoded again in every epoch; delete old files in it or allow more",
            folder,
            size / 2**30,
            taken / 2**30,
            self.gib,
            free / 2**30,
        )
        return False

    def store(
        self, decoded: Iterable[tuple[int, np.ndarray]], records: Sequence[Record], *, height: int, width: int
    ) -> Mapped:
        """Writes decoded images and maps them.

        Args:
            decoded: positions in ``records`` in ascending order, and images (H, W, 3) uint8; at least one.
            records: all that are wanted.
            height, width: of the images, in pixels.

        Raises:
            InputError: the folder cannot be written to, or the disk is full after all.
        """

        def write(file: IO[bytes]) -> None:
            kept, checksums = [], []
            for index, image in decoded:
                pixels = np.ascontiguousarray(image).data
                file.write(pixels)
                kept.append(index)
                checksums.append(zlib.crc32(pixels))
            file.write(sealed(np.array(kept, np.int64).tobytes() + np.array(checksums, np.uint32).tobytes()))
            file.flush()

        path = self._path(records, height, width)
        if path is not None:
            write_atomically(path, write, private=True)
            with open(path, "rb") as named:
                mapped = _map(named, path, height, width)
        else:
            mapped = self._unnamed(write, height, width)
        assert mapped is not None  # at least one image was written
        return mapped

    def _unnamed(self, write: Callable[[IO[bytes]], None], height: int, width: int) -> Mapped | None:
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                write(file)
                return _map(file, "", height, width)
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    def _path(self, records: Sequence[Record], height: int, width: int) -> Path | None:
        """The file of these images as they are now; None where it shall have no name."""
        if not self.folder or not self.keep:
            return None
        digest = hashlib.sha256(f"2 {height} {width} crc32".encode())  # 2: how images are decoded and resized
        for record in records:
            file = file_of(record.path)
            if file is None:
                return None
            try:
                state = os.stat(file)
            except OSError:
                return None
            path = record.path.replace(file, os.path.abspath(file))  # with the angle where the image is rotated
            digest.update(os.fsencode(f"\n{path}\0{state.st_size} {state.st_mtime_ns}"))
        return Path(self.folder) / f"{digest.hexdigest()[:32]}.images"


def _map(file: IO[bytes], path: str | Path, height: int, width: int) -> Mapped | None:
    """Images, their positions as int64, their checksums as uint32, and the checksum of these two; None of damage.

    Pages are shared by all processes and read when they are needed. What has no path no other process can change.
    """
    each = height * width * 3
    count, rest = divmod(os.fstat(file.fileno()).st_size - 4, each + 8 + 4)
    if rest or count == 0:
        return None
    images = np.memmap(file, np.uint8, "r", shape=(count, height, width, 3))
    file.seek(count * each)
    try:
        end = unsealed(file.read())
    except ValueError:
        return None
    kept, checksums = np.frombuffer(end, np.int64, count), np.frombuffer(end, np.uint32, offset=count * 8)
    return Mapped(path, images.view(np.ndarray), kept.tolist(), checksums[: count if path else 0])


def _unwritable(folder: str | Path, error: OSError) -> InputError:
    return InputError(
        f"{folder}: decoded images cannot be written ({error.strerror}); keep them in another one, or "
        "decode them in every epoch: folder=''"
    )
