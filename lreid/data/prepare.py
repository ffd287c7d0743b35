"""Unpack the archives of data sets and prepare their images.

Every step can be stopped and started again: files that are whole are not made twice, and no half is taken for a
whole: files get their names when they are complete, and folders of crops get theirs at the very end.
"""

from __future__ import annotations

import errno
import logging
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from tqdm import tqdm

from lreid.data.datasets import spec_of
from lreid.data.layout import describe_folder
from lreid.data.spec import Spec
from lreid.errors import InputError, refuse_out_of_memory
from lreid.files import remove_leftovers, write_file
from lreid.reading import require_regular

logger = logging.getLogger("lreid")

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


def prepare(name: str, root: Path, archives: Sequence[Path] = ()) -> None:
    """Unpacks the archives of a data set and prepares its images.

    Archives that lie in the data set's own folder are found there unless some are named. Most sets need nothing but
    unpacking; the others are converted.

    Raises:
        InputError: the name is unknown, an archive is damaged or unsafe, the disk is full, or there is nothing
            to prepare from.
    """
    spec = spec_of(name)
    if not archives and _loads(spec, root):
        logger.info("%s: there already, nothing to prepare", name)
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
    for archive in archives:
        unpack(archive, folder)
    if spec.conversion:
        spec.conversion.convert(replace(spec, layout=spec.conversion.release, conversion=None).home(root))


def _loads(spec: Spec, root: Path) -> bool:
    try:
        spec.load(root)
    except InputError:
        return False
    return True


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a zip or tar file into a folder, which is made.

    Nothing is written when any member would land outside the folder or is a link or a device. Members that are
    there already with their full size are passed over.

    Raises:
        InputError: the archive is missing, damaged, locked by a password, unsafe, of another kind, or larger than
            the space on the disk.
    """
    try:
        with _members(archive) as members:
            for member in members:
                _require_safe(archive, member)
            missing = [
                member
                for member in members
                if not (target := folder / member.name).is_file() or target.stat().st_size != member.size
            ]
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"{folder}: cannot be made ({error.strerror}); choose another --root") from None
            wanted, free = sum(member.size for member in missing), shutil.disk_usage(folder).free
            if wanted > free:
                raise InputError(
                    f"{folder}: {wanted / 2**30:.1f} GiB to unpack, {free / 2**30:.1f} GiB free; free some space"
                )
            for place in {(folder / member.name).parent for member in missing}:
                remove_leftovers(place)
            logger.info("%s: %d files, %d there already", archive, len(members), len(members) - len(missing))
            for member in tqdm(missing, desc=f"unpack {archive.name}", unit="file", disable=None):
                with member.open() as source:
                    _write(folder / member.name, source)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{archive}: no such archive; check the path") from None
    except RuntimeError as error:  # how zipfile reports a password
        refuse_out_of_memory(error, archive)
        raise InputError(f"{archive}: cannot be unpacked ({error}); unpack it manually into {folder}") from None
    except Exception as error:  # damage shows in the many ways of two kinds of archives
        refuse_out_of_memory(error, archive)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{archive}: cannot be unpacked ({reason}); get it again if it is damaged") from None


def _write(file: Path, source: IO[bytes]) -> None:
    """Writes a member; a fault of the disk is reported as such, not as damage of the archive."""
    try:
        write_file(file, partial(shutil.copyfileobj, source))
    except OSError as error:
        if error.errno in (None, errno.EIO):  # gzip's word for damage, and the archive's disk
            raise
        raise InputError(
            f"{file}: cannot be written ({error.strerror}); free some space or choose another --root"
        ) from None


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int  # bytes
    plain: bool  # neither a link nor a device
    open: Callable[[], Any]  # a readable binary file


@contextmanager
def _members(archive: Path) -> Iterator[list[Member]]:
    """The files of an open archive, without its folders."""
    if archive.is_dir():
        raise InputError(f"{archive}: is a folder; name the zip or tar file")
    require_regular(archive)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as content:
            yield [
                Member(
                    info.filename.replace("\\", "/"),
                    info.file_size,
                    not stat.S_ISLNK(info.external_attr >> 16),
                    partial(content.open, info),
                )
                for info in content.infolist()
                if not info.is_dir()
            ]
        return
    with tarfile.open(archive) as tar:
        yield [
            Member(info.name, info.size, info.isfile(), partial(tar.extractfile, info))
            for info in tar
            if not info.isdir()
        ]


def _require_safe(archive: Path, member: Member) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise InputError(
            f"{archive}: holds {member.name!r}, which lies outside the folder it is unpacked in; nothing was "
            "unpacked: get the archive from its authors again"
        )
    if not member.plain:
        raise InputError(
            f"{archive}: holds the link or device {member.name!r}; nothing was unpacked: get the archive from its "
            "authors again"
        )
