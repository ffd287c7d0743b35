"""Unpack the archives of data sets and prepare their images.

Every step can be interrupted and repeated; when it is repeated, it skips complete files. A file gets its final name
only when it is complete. A folder of crops gets its final name when all its files are complete.
"""

import errno
import logging
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from tqdm import tqdm

from lreid.data.datasets import spec_of
from lreid.errors import InputError
from lreid.utils.files import describe_folder, remove_leftovers, write_file
from lreid.utils.reading import raise_if_unreadable, require_regular

logger = logging.getLogger("lreid")

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
FRAMES = 16  # default number of frames per tracklet


def prepare(name: str, root: Path, archives: Sequence[Path] = (), *, frames: int = 0) -> None:
    """Unpack the archives of a data set and prepare its images.

    If ``archives`` is empty, lreid uses the archives in the folder of the data set. Most data sets only need unpacking;
    some are also converted to images.

    Args:
        archives: paths of the data set's archives.
        frames: number of frames per tracklet to unpack, for data sets with tracklets; 0 means 16.

    Raises:
        InputError: the name is unknown, an archive is damaged or unsafe, the disk is full, or the folder has neither an
            archive nor an unpacked release.
    """
    spec = spec_of(name)
    if frames and not spec.unpack_frames:
        raise InputError(f"--frames: {name} has no tracklets; remove the option")
    if not archives and not frames:
        with suppress(InputError):
            spec.load(root)
            logger.info("%s: already prepared", name)
            return
    folder = root / spec.folder
    if not archives and not (spec.conversion and spec.conversion.released(root)):
        files = folder.iterdir() if folder.is_dir() else ()
        archives = sorted(path for path in files if path.name.lower().endswith(ARCHIVES))
        if not archives:
            raise InputError(
                f"{name}: nothing to prepare: {describe_folder(folder)}; put the archive there (from "
                f"{spec.source or 'its authors'}), or name it with --archive"
            )
    if spec.unpack_frames:
        spec.unpack_frames(archives, folder, frames or FRAMES)
        return
    for archive in archives:
        unpack(archive, folder)
    if spec.conversion:
        spec.conversion.convert(replace(spec, layout=spec.conversion.release, conversion=None).home(root))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip or tar file into a folder; create the folder if it does not exist.

    Nothing is written if a file of the archive is a link or a device, or would be written outside the folder. Existing
    files of the right size are skipped.

    Raises:
        InputError: the archive is missing, damaged, protected by a password, unsafe, or neither zip nor tar; or the
            disk is full.
    """
    with _members(archive, folder) as stream:
        members = [*stream]
        for member in members:
            _require_safe(archive, member)
        missing = [
            member
            for member in members
            if not (target := folder / member.name).is_file() or target.stat().st_size != member.size
        ]
        for place in {(folder / member.name).parent for member in missing}:
            remove_leftovers(place)
        logger.info("%s: %d files, of which %d exist already", archive, len(members), len(members) - len(missing))
        for member in tqdm(missing, desc=f"unpack {archive.name}", unit="file", disable=None):
            with member.open() as source:
                _write(folder / member.name, source)


def extract(archive: Path, wanted: dict[str, Path]) -> None:
    """Write selected files of an archive to disk in one pass, which stops when all selected files are written.

    Args:
        archive: a zip or tar file; it may be larger than the memory.
        wanted: dictionary from file names (without folders) to output paths. The function removes the files that it has
            written from this dictionary.

    Raises:
        InputError: the archive is missing, the disk is full, or the archive is truncated or damaged. Files before the
            damaged part of an archive are still written.
    """
    for place in {path.parent for path in wanted.values()}:
        place.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place)
    bar = tqdm(total=len(wanted), desc=f"read {archive.name}", unit="file", disable=None)
    with _members(archive, archive.parent) as members, bar:
        while wanted and (member := next(members, None)) is not None:
            if member.plain and (target := wanted.get(PurePosixPath(member.name).name)):
                with member.open() as source:
                    _write(target, source)
                del wanted[target.name]
                bar.update()


def _write(file: Path, source: IO[bytes]) -> None:
    """Write one file of an archive; a full disk and a damaged archive raise different errors."""
    try:
        write_file(file, partial(shutil.copyfileobj, source))
    except OSError as error:
        if error.errno in (None, errno.EIO):  # gzip reports damage without errno; EIO: the archive cannot be read
            raise
        raise InputError(f"{file}: cannot be written ({error.strerror}); free space or choose another --root") from None


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int  # bytes
    plain: bool  # neither a link nor a device
    open: Callable[[], Any]  # a readable binary file


@contextmanager
def _members(archive: Path, folder: Path) -> Iterator[Iterator[Member]]:
    """Open an archive and yield an iterator over its files, without folders; errors name the target ``folder``."""
    try:
        require_regular(archive)
        with zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else tarfile.open(archive) as content:
            yield _in_zip(content) if isinstance(content, zipfile.ZipFile) else _in_tar(content)
    except Exception as error:  # damaged archives raise exceptions of many kinds
        raise_if_unreadable(error, archive, "archive")
        reason = " ".join(str(error).split()) or type(error).__name__
        protected = isinstance(error, RuntimeError)  # how zipfile reports a password
        advice = f"unpack it manually into {folder}" if protected else "download it again if it is damaged"
        raise InputError(f"{archive}: cannot be unpacked ({reason}); {advice}") from None


def _in_zip(content: zipfile.ZipFile) -> Iterator[Member]:
    for info in content.infolist():
        if not info.is_dir():
            plain = not stat.S_ISLNK(info.external_attr >> 16)
            yield Member(info.filename.replace("\\", "/"), info.file_size, plain, partial(content.open, info))


def _in_tar(content: tarfile.TarFile) -> Iterator[Member]:
    while (info := content.next()) is not None:
        content.members.clear()  # type: ignore[attr-defined]  # do not keep the members of an archive of millions of files
        if not info.isdir():
            yield Member(info.name, info.size, info.isfile(), partial(content.extractfile, info))


def _require_safe(archive: Path, member: Member) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    outside = path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":"))
    if outside or not member.plain:
        fault = "which would be written outside the target folder" if outside else "which is a link or a device"
        raise InputError(f"{archive}: contains {member.name!r}, {fault}; nothing was unpacked: download it again")
