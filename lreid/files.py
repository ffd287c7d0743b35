"""Write files atomically and durably, list folders and lock them."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import logging
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import filelock

from lreid.errors import InputError, NotConfirmed, refuse_out_of_memory

logger = logging.getLogger("lreid")

FILLED = ".lreid"  # a file in folders that are being filled
UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.lreid")  # names that :func:`unfinished` gives
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EBADF)  # of file systems without; NFS: EBADF for folders
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)  # of systems and folders that cannot do it


def lock(path: Path) -> filelock.BaseFileLock:
    """Makes a file that one process at a time can hold, until it releases it or ends, however it ends.

    Processes that are forked from the holder do not hold it.

    Raises:
        filelock.Timeout: another process holds it.
        OSError: the file cannot be made, or the file system has no locks.
    """
    held = filelock.FileLock(path, thread_local=False, fallback_to_soft=False)
    held.acquire(blocking=False)
    return held


def hold(descriptor: int, *, wait: bool = True) -> bool:
    """Locks an open file or folder until it is closed; True as well on a file system that has no locks.

    Args:
        descriptor: descriptor of the open file or folder.
        wait: until others have left it; otherwise False says that another process holds it.

    Raises:
        OSError: it cannot be locked for another reason.
    """
    try:
        return filelock.lock_descriptor(descriptor, blocking=wait)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return True


@contextlib.contextmanager
def only_one_process(folder: Path) -> Iterator[None]:
    """Waits until no other process that asks here has a folder; nothing is written to it for that.

    Raises:
        OSError: there is no such folder, or another one took its place while this process waited.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        hold(descriptor)
        if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        yield
    finally:
        with contextlib.suppress(OSError):  # nothing was written through it
            os.close(descriptor)


def real_path(path: str | Path) -> Path:
    """The file that a symbolic link leads to, whether it is there or not; any other path as it is."""
    return Path(os.path.realpath(path) if os.path.islink(path) else path)


def is_stream(path: Path) -> bool:
    """Whether a path is written into as it is: a device such as /dev/null, a pipe, or an open file as /dev/stdout.

    Raises:
        InputError: it is there and can be neither written into nor replaced: a folder, a socket, a disk.
        OSError: what is there cannot be determined.
    """
    if _descriptor(path) is not None:
        return True
    kind = os.stat(path).st_mode if path.exists() else 0
    if stat.S_ISCHR(kind) or stat.S_ISFIFO(kind):
        return True
    require_replaceable(path)
    return False


def require_replaceable(path: Path) -> None:
    """Refuses a path that no file may take, since what is there is not a regular file.

    Raises:
        InputError: it is a folder, a device, a pipe, or a socket.
        OSError: what is there cannot be determined.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file, so it is not replaced; choose another name")


def _descriptor(path: Path) -> int | None:
    """The number of the open file of this process that links lead to, as from /dev/stdout; None for other paths."""
    while path.is_symlink() and path.exists():
        folder = os.path.realpath(path.parent)
        if folder == f"/proc/{os.getpid()}/fd":
            return int(path.name)
        path = Path(folder, os.readlink(path))
    return None


def _write_stream(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes into what is there, when all of the content is known."""
    content = io.BytesIO()
    write(content)
    number = _descriptor(path)
    with open(os.open(path, os.O_WRONLY) if number is None else os.dup(number), "wb") as stream:
        stream.write(content.getbuffer())


def write_atomically(
    path: str | Path, write: Callable[[IO[bytes]], Any], *, previous: Path | None = None, private: bool = False
) -> None:
    """Writes a file through a temporary one next to it, so that a reader never sees half of it.

    When this returns, a power cut does not undo it. A symbolic link is followed. A device or a pipe is written into.
    What processes that were killed have left of the same file is deleted.

    Args:
        path: the file; one that exists is replaced when the new one is complete, which takes over its mode and owner.
        write: called with the open binary file.
        previous: what is replaced stays under this name.
        private: a file that is new can be read by its owner only; otherwise the umask decides.

    Raises:
        InputError: the folder cannot be written to, the disk is full, or the path is that of a folder or a socket;
            what was there before stays.
        NotConfirmed: as :func:`sync_folder`.
    """
    try:
        if is_stream(Path(path)):
            _write_stream(Path(path), write)
            return
        path = real_path(path)
        make_folder(path.parent)
        remove_leftovers(path.parent, path.name)
        if previous is not None:
            require_replaceable(previous)
        with unfinished(path, private=private) as file:
            write(file)
            finish(file, path)
            if previous is not None and path.exists():
                path.replace(previous)
            os.replace(file.name, path)
    except (OSError, RuntimeError) as error:
        refuse_out_of_memory(error, path)
        reason = str(error)
        if isinstance(error, RuntimeError):  # torch.save hides why a write failed, mostly a full disk
            reason = f"the write broke off; {shutil.disk_usage(Path(path).parent).free >> 20} MiB are free on the disk"
        raise InputError(
            f"{path}: cannot be written ({reason}); what was saved before is whole: "
            "free some space or fix the permissions, then start again; training continues with --resume"
        ) from None
    sync_folder(path.parent, path)


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file that can be made again: under another name, then renamed, without waiting for the disk.

    Raises:
        InputError: the path is that of a folder, a device, a pipe or a socket.
        OSError: it cannot be written; what to do about it the caller knows.
    """
    require_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(path) as file:
        write(file)
        file.flush()
        os.replace(file.name, path)


def require_writable(path: str | Path) -> None:
    """Raises before long work the errors that :func:`write_atomically` would raise after it.

    Raises:
        InputError: the folder cannot be made or written to, or what is there cannot be replaced.
    """
    try:
        stream = is_stream(Path(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
    if stream:
        return
    path = real_path(path)
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir():
        raise InputError(f"{path}: cannot be written, since {folder} is a file; choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written, since {folder} may not be; choose another place")


def write_text(path: str | Path, text: str) -> None:
    r"""Writes UTF-8 text with :func:`write_atomically`; halves of characters come out as of :func:`escaped`."""
    write_atomically(path, lambda file: file.write(text.encode(errors="backslashreplace")))


@contextlib.contextmanager
def unfinished(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A new file next to ``path``, open for writing and reading, that is removed at the end unless it was renamed.

    It is locked meanwhile, so that others can distinguish it from the file of a killed process.

    Raises:
        OSError: it cannot be made.
        InputError: this is Windows, where no open file can be renamed.
    """
    if sys.platform == "win32":
        raise InputError(f"{path}: lreid writes files on Linux and macOS only; run it in WSL 2")
    mode = 0o600 if private or path.exists() else 0o666
    while True:
        name = _new_name(path)
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        # On a file system without locks no process takes the file for a leftover either.
        with contextlib.suppress(OSError):
            filelock.lock_descriptor(descriptor)
        if os.fstat(descriptor).st_nlink:  # else another process took it for a leftover before it was locked
            break
        os.close(descriptor)
    file = open(name, "w+b", opener=lambda *_: descriptor)  # noqa: SIM115, closed below
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # the next write deletes it
            os.unlink(name)
        with contextlib.suppress(OSError):  # it was synchronised, or is not wanted
            file.close()


def second_name(path: Path) -> Path:
    """Another name of a file, that of an unfinished one, from which it can be renamed.

    Raises:
        OSError: it cannot be given.
    """
    second = Path(_new_name(path))
    os.link(path, second)
    return second


def _new_name(path: Path) -> str:
    return str(path.with_name(f".{path.name}.{secrets.token_hex(4)}.lreid"))


def finish(file: IO[bytes], path: Path) -> None:
    """Forces a file to disk and gives it mode and owner of the one that it replaces, if there is one.

    Raises:
        OSError: the disk is full or broken.
    """
    file.flush()
    if path.exists():
        status = path.stat()
        with contextlib.suppress(OSError):  # only root can give files away
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
    os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it that are missing; a power cut does not undo it.

    Raises:
        OSError: it cannot be made, or the disk does not confirm it.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync(each.parent)


def sync_folder(folder: Path, changed: Path) -> None:
    """Forces the names of a folder to disk, so that a power cut does not undo a rename.

    Raises:
        NotConfirmed: the disk does not confirm it; what was ``changed`` is changed all the same.
    """
    try:
        _sync(folder)
    except OSError as error:
        raise NotConfirmed(
            f"{changed}: done, but the disk does not confirm it ({error.strerror}), so a power cut may undo it; "
            "check the disk"
        ) from None


def _sync(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """Paths in a folder that match a pattern of :mod:`fnmatch`, sorted; empty if there is no folder.

    Raises:
        InputError: the folder cannot be listed, so nobody knows whether it is empty.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        _require_absent(error, folder)
        return []
    except ValueError:  # a NUL in the path
        return []
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def files_below(folder: Path) -> list[Path]:
    """The files in a folder and in those below it, sorted; links to folders are not followed.

    Raises:
        InputError: as :func:`list_folder`.
    """
    tree = os.walk(folder, onerror=lambda error: _require_absent(error, error.filename or folder))
    return sorted(Path(above, name) for above, _, names in tree for name in names)


def _require_absent(error: OSError, folder: Path) -> None:
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        raise InputError(f"{folder}: cannot be listed ({error.strerror}); correct its permissions") from None


def leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Unfinished files in a folder, of one file or of all, also those that are being written at this moment.

    Raises:
        InputError: as :func:`list_folder`.
    """
    matches = ((path, UNFINISHED.fullmatch(path.name)) for path in list_folder(folder))
    return [path for path, match in matches if match and name in (None, match["name"])]


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Deletes the unfinished files in a folder whose process was killed, of one file or of all.

    Only who is about to write there calls this. Without locks, or where the folder cannot be listed, they stay.
    """
    with contextlib.suppress(InputError):
        for path in leftovers(folder, name):
            with contextlib.suppress(OSError), open(path, "r+b") as file:  # it is finished, or not ours to delete
                if filelock.lock_descriptor(file.fileno(), blocking=False):
                    path.unlink()


@contextlib.contextmanager
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
    mark = unfinished / FILLED
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
    for path in files_below(unfinished):
        if UNFINISHED.fullmatch(path.name):
            path.unlink()
    unfinished.rename(folder)
    (folder / FILLED).unlink()
