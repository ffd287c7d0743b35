"""Write files atomically and durably, and list and lock folders."""

import contextlib
import errno
import fnmatch
import logging
import os
import re
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import filelock

from lreid.errors import InputError, NotConfirmed, raise_if_out_of_memory

logger = logging.getLogger("lreid")

UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.lreid")  # names of unfinished files and folders
# The mark of lreid's pages, tables, JSON files and exported models: <meta name="generator" content="lreid">,
# "generator": "lreid", or a property or part of that name. The last alternative stands in pages of earlier versions.
MARK = re.compile(rb"generator\W+(content\W+)?lreid\b|\x05lreid\x12|lreid\.json|Every page: light and dark, phone")
# Errors that mean: a file system has no locks (NFS raises EBADF for folders); a folder cannot be synchronised.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EBADF)
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)


def lock(path: Path) -> filelock.BaseFileLock:
    """Create a lock file and lock it until this process releases the lock or ends.

    Only one process at a time can hold the lock. Child processes of this process do not hold the lock.

    Raises:
        filelock.Timeout: another process holds the lock.
        OSError: the file cannot be created, or the file system has no locks.
    """
    held = filelock.FileLock(path, thread_local=False, fallback_to_soft=False)
    held.acquire(blocking=False)
    return held


def lock_open_file(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file or folder until it is closed.

    Args:
        descriptor: descriptor of the open file or folder.
        wait: whether to wait until other processes release the lock.

    Returns:
        False if another process holds the lock and ``wait`` is False; otherwise True. On a file system without locks,
        the result is always True.

    Raises:
        OSError: the file or folder cannot be locked, although the file system has locks and no other process holds this
            lock.
    """
    try:
        return filelock.lock_descriptor(descriptor, blocking=wait)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return True


@contextlib.contextmanager
def only_one_process(path: str | Path) -> Iterator[None]:
    """Wait for the lock of a folder or file, without writing a lock file.

    Raises:
        OSError: the path does not exist.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock_open_file(descriptor)
        yield
    finally:
        with contextlib.suppress(OSError):  # nothing was written through the descriptor, so errors do not matter
            os.close(descriptor)


def spelled(path: str, exists: Callable[[str], bool] = os.path.exists) -> str:
    """Return a path in the Unicode form in which it exists (NFC or NFD), or unchanged if it does not exist."""
    forms = [path] if path.isascii() else [path, *(unicodedata.normalize(form, path) for form in ("NFC", "NFD"))]
    return next(filter(exists, forms), path)


def real_path(path: str | Path) -> Path:
    """Return the target of a symbolic link, even one that does not exist; return other paths unchanged."""
    return Path(os.path.realpath(path) if os.path.islink(path) else path)


def require_replaceable(path: str | Path) -> None:
    """Refuse a path that exists and is not a regular file.

    Raises:
        InputError: the path is a folder, a device, a pipe, or a socket.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path}: is not a regular file, so it is not replaced; choose a different name")


def write_atomically(
    path: str | Path, write: Callable[[IO[bytes]], Any], *, previous: Path | None = None, private: bool = False
) -> None:
    """Write a file by way of a temporary file in the same folder, so that readers never see incomplete content.

    Once this function has returned, a power cut does not undo the change. If the path is a symbolic link, its target is
    written. The function also deletes temporary files that killed processes have left for the same path.

    Args:
        path: path of the file. A new file gets the mode and owner of an existing file, and replaces it only when
            complete.
        write: function that writes the content to the open binary file that it gets as argument.
        previous: new path of an existing file, or None to delete it.
        private: whether only the owner may read a file that did not exist before; otherwise, the umask determines its
            mode.

    Raises:
        InputError: the folder cannot be written to, the disk is full, or the path is not a regular file; an existing
            file is unchanged.
        NotConfirmed: see :func:`sync_folder`.
    """
    try:
        for each in (path, previous or path):
            require_replaceable(each)
        path = real_path(path)
        make_folder(path.parent)
        remove_leftovers(path.parent, path.name)
        with unfinished(path, private=private) as file:
            write(file)
            sync_file(file, path)
            if previous is not None and path.exists():
                path.replace(previous)
            os.replace(file.name, path)
    except (OSError, RuntimeError) as error:
        raise_if_out_of_memory(error, path)
        reason = str(error)
        if isinstance(error, RuntimeError):  # torch.save hides the cause of a failed write, usually a full disk
            reason = f"writing failed; {shutil.disk_usage(Path(path).parent).free >> 20} MiB are free on the disk"
        raise InputError(
            f"{path}: cannot be written ({reason}); files saved before are intact: "
            "free some space or fix the permissions, then start again; training continues with --resume"
        ) from None
    sync_folder(path.parent, path)


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file that can be made again: write a temporary file and rename it, without forcing it to disk.

    Raises:
        InputError: the path is a folder, a device, a pipe or a socket.
        OSError: the file cannot be written; the caller must handle this error.
    """
    require_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(path) as file:
        write(file)
        file.flush()
        os.replace(file.name, path)


def require_writable(path: str | Path) -> None:
    """Check that :func:`write_atomically` will be able to write a file, before long work on its content.

    Raises:
        InputError: the folder cannot be created or written to, or an existing path cannot be replaced.
    """
    require_replaceable(path)
    path = real_path(path)
    folder = next(each for each in path.absolute().parents if os.path.exists(each))
    if not folder.is_dir():
        raise InputError(f"{path}: cannot be written, because {folder} is a file; choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written, because {folder} is not writable; choose another place")
    longest = os.pathconf(folder, "PC_NAME_MAX")
    if any(len(os.fsencode(part)) > longest for part in Path(_new_name(path)).parts):
        raise InputError(f"{path}: has a name of more than {longest - 16} bytes; choose a shorter one")


def require_own(*paths: str | Path) -> None:
    """Check like :func:`require_writable`, and refuse to replace files without the mark of lreid.

    Raises:
        InputError: see :func:`require_writable`, or lreid did not write an existing file, or it cannot be read.
    """
    for path in paths:
        require_writable(path)
        try:
            own = not os.path.exists(path) or MARK.search(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}), so it is not replaced; move it") from None
        if not own:
            raise InputError(f"{path}: is not a file of lreid, so it is not replaced; move it, or choose another place")


def write_text(path: str | Path, text: str) -> None:
    r"""Write UTF-8 text with :func:`write_atomically`; lone surrogates are escaped as in :func:`escaped`.

    Text with the mark of lreid replaces only a file with this mark, see :func:`require_own`.
    """
    content = text.encode(errors="backslashreplace")
    if MARK.search(content):
        require_own(path)
    write_atomically(path, lambda file: file.write(content))


@contextlib.contextmanager
def unfinished(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a new temporary file in the folder of ``path``, and delete it at the end unless the caller renamed it.

    The context locks this file, so that other processes can distinguish it from files of killed processes.

    Raises:
        OSError: the file cannot be created.
    """
    create = partial(os.open, mode=0o600 if private or path.exists() else 0o666)
    while True:
        file = open(_new_name(path), "x+b", opener=create)  # noqa: SIM115, closed below
        # A file system without locks raises OSError; then no other process deletes the file as a leftover.
        with contextlib.suppress(OSError):
            filelock.lock_descriptor(file.fileno())
        if os.fstat(file.fileno()).st_nlink:  # otherwise another process deleted the file before it was locked
            break
        file.close()
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # the next write of the same path deletes the file
            os.unlink(file.name)
        with contextlib.suppress(OSError):  # an error does not matter: the file was synchronised, or is not needed
            file.close()


@contextlib.contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder next to ``path`` and delete it at the end; it is locked like a file of `unfinished`.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    remove_leftovers(path.parent, path.name)
    folder = Path(_new_name(path))
    try:
        folder.mkdir(mode=0o700, parents=True)
        with only_one_process(folder):
            yield folder
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another place") from None
    finally:
        with contextlib.suppress(OSError):  # rmtree does not ignore errors of closing a folder
            shutil.rmtree(folder, ignore_errors=True)


def hard_link(path: Path) -> Path:
    """Give a file a second, temporary name (a hard link) that the caller can rename.

    Raises:
        OSError: the name cannot be created.
    """
    second = Path(_new_name(path))
    os.link(path, second)
    return second


def _new_name(path: Path) -> str:
    return str(path.with_name(f".{path.name}.{secrets.token_hex(4)}.lreid"))


def sync_file(file: IO[bytes], path: Path) -> None:
    """Force a file to disk, and give it the mode and owner of an existing file at ``path``.

    Raises:
        OSError: the disk is full or defective.
    """
    file.flush()
    if path.exists():
        status = path.stat()
        with contextlib.suppress(OSError):  # only root can change the owner
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
    os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Create a folder and missing parent folders, and force their names to disk.

    Raises:
        OSError: the folder cannot be created, or the disk does not confirm its creation.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync(each.parent)


def sync_folder(folder: Path, changed: Path) -> None:
    """Force the file names in a folder to disk, so that a power cut does not undo the renaming of a file.

    Raises:
        NotConfirmed: the disk does not confirm that the file ``changed`` was renamed.
    """
    try:
        _sync(folder)
    except OSError as error:
        raise NotConfirmed(
            f"{changed}: done, but the disk does not confirm it ({error.strerror}), so a power cut may undo it; "
            "check the disk"
        ) from None


def sync_below(folder: Path, top: Path) -> None:
    """Force to disk all files and names below ``folder``, and the names of folders between ``top`` and ``folder``.

    Raises:
        OSError: the disk does not confirm that everything was written.
    """
    for path in (*folder.rglob("*"), folder, *(top / parent for parent in folder.relative_to(top).parents)):
        _sync(path)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """List the paths in a folder that match an :mod:`fnmatch` pattern, sorted; empty if there is no such folder.

    Raises:
        InputError: the folder cannot be listed, so its content is unknown.
    """
    try:
        names = os.listdir(folder)
    except (OSError, ValueError) as error:
        _require_absent(error, folder)
        return []
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def describe_folder(folder: Path, limit: int = 8) -> str:
    """Describe the content of a folder for a message: ``FOLDER holds a, b, c and 12 more``."""
    if not folder.is_dir():
        return f"{folder} does not exist"
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    if not names:
        return f"{folder} is empty"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{folder} holds {', '.join(names[:limit])}{more}"


def files_below(folder: Path) -> list[Path]:
    """List all files in a folder and its subfolders, sorted; symbolic links to folders are not followed.

    Raises:
        InputError: see :func:`list_folder`.
    """
    tree = os.walk(folder, onerror=lambda error: _require_absent(error, error.filename or folder))
    return sorted(Path(above, name) for above, _, names in tree for name in names)


def _require_absent(error: OSError | ValueError, folder: str | Path) -> None:
    # ValueError: the path contains a NUL
    if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        raise InputError(f"{folder}: cannot be listed ({error.strerror}); correct its permissions") from None


def leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """List all temporary files in a folder, even locked ones; with ``name``, only those of the file ``name``.

    Raises:
        InputError: see :func:`list_folder`.
    """
    matches = ((path, UNFINISHED.fullmatch(path.name)) for path in list_folder(folder))
    return [path for path, match in matches if match and name in (None, match["name"])]


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Delete the temporary files of killed processes in a folder; with ``name``, only those of the file ``name``.

    Call this function only before writing to the folder. Nothing is deleted if the file system has no locks or the
    folder cannot be listed.
    """
    with contextlib.suppress(InputError):
        for path in leftovers(folder, name):
            with contextlib.suppress(OSError):  # the file was deleted meanwhile, or belongs to another user
                is_folder = path.is_dir()
                descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
                try:
                    if filelock.lock_descriptor(descriptor, blocking=False):
                        (shutil.rmtree if is_folder else os.unlink)(path)
                finally:
                    os.close(descriptor)


@contextlib.contextmanager
def folder_at_once(folder: Path, *, resume: bool = False) -> Iterator[Path | None]:
    """Yield a temporary folder and rename it to ``folder`` at the end; yield None if ``folder`` already exists.

    Args:
        folder: the final folder. The temporary folder is ``.FOLDER.unfinished.lreid`` next to it.
        resume: whether the temporary folder still contains the files of an earlier attempt that was killed.

    Raises:
        OSError: the folder cannot be created; the caller must handle this error.
    """
    if folder.is_dir():
        logger.info("%s: already exists", folder)
        yield None
        return
    part = folder.with_name(f".{folder.name}.unfinished.lreid")
    if part.exists() and not resume:
        shutil.rmtree(part)
    part.mkdir(parents=True, exist_ok=True)
    yield part
    for path in part.rglob(".*.lreid"):  # temporary files of the earlier attempt
        path.unlink()
    part.rename(folder)
