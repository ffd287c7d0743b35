"""Write files atomically and durably, lock them, and read tensors without running code."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import json
import os
import re
import secrets
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import filelock
import torch
import yaml

from lreid.errors import InputError, NewerFormat, NotConfirmed, refuse_out_of_memory

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
        descriptor: of the open file or folder.
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
def alone(folder: Path) -> Iterator[None]:
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
        OSError: what is there cannot be told.
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
        OSError: what is there cannot be told.
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
    """Writes a file through a temporary one beside it, so that a reader never sees half of it.

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
            "free some space or mend the permissions, then start again; training goes on with --resume"
        ) from None
    sync_folder(path.parent, path)


def require_writable(path: str | Path) -> None:
    """Tells before long work what :func:`write_atomically` would tell behind it.

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
    """A new file beside ``path``, open for writing and reading, that is removed in the end unless it was renamed.

    It is locked meanwhile, so that others can tell it from one whose process was killed.

    Args:
        path: of the file that it is to become.
        private: as in :func:`write_atomically`.

    Raises:
        OSError: it cannot be made.
    """
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
        found = path.stat()
        with contextlib.suppress(OSError):  # only root can give files away
            os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
            os.fchown(file.fileno(), found.st_uid, found.st_gid)
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
    """What a folder holds under names that a pattern of :mod:`fnmatch` fits, sorted; nothing if there is no folder.

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


def require_regular(path: str | Path) -> None:
    """Refuses what never ends or may wait for ever when it is read: a FIFO, a socket, a device.

    What is missing or a folder passes; whoever reads it says so.

    Raises:
        InputError: it is one of these.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise InputError(f"{path}: is {kind}, which is not read; save its content in a file and name that")


def require_not_newer(path: str | Path, found: Any, known: int, fault: str) -> None:
    """Tells a file of a later version of lreid from a damaged one.

    Args:
        path: named in the error.
        found: the number of its format.
        known: the largest one that this version reads.
        fault: what the file is not, in words.

    Raises:
        NewerFormat: it is larger.
    """
    if isinstance(found, (int, float)) and found > known:
        raise NewerFormat(
            f"{path}: {fault}: a later one wrote it (format {found}, this version reads {known}); update lreid"
        )


def read_bytes(path: str | Path) -> bytes:
    """What a file holds.

    Raises:
        InputError: as :func:`require_regular`.
        OSError: it cannot be read.
    """
    require_regular(path)
    return Path(path).read_bytes()


def read_text(path: str | Path, *, errors: str = "strict") -> str:
    """What a file of UTF-8 text holds, without its byte-order mark.

    Raises:
        InputError: as :func:`require_regular`.
        OSError: it cannot be read.
        ValueError: it is not UTF-8.
    """
    require_regular(path)
    return Path(path).read_text(encoding="utf-8-sig", errors=errors)


def escaped(value: Any) -> Any:
    r"""Plain data whose text can be written as UTF-8: halves of characters (lone surrogates) are text like ``\udcff``.

    Python has them for bytes of file names that are no UTF-8, such as those of names in GBK.

    Args:
        value: text, numbers, None, and lists, tuples and dicts of them; text that is whole stays as it is.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [escaped(each) for each in value]
    if isinstance(value, dict):
        return {escaped(key): escaped(each) for key, each in value.items()}
    return value


def sealed(content: bytes) -> bytes:
    """The content with its CRC-32 behind it, as four bytes."""
    return content + zlib.crc32(content).to_bytes(4, "little")


def unsealed(content: bytes) -> bytes:
    """What :func:`sealed` was given.

    Raises:
        ValueError: it has been changed or cut since.
    """
    if sealed(content[:-4]) != content:
        raise ValueError("its checksum is wrong")
    return content[:-4]


def read_json(path: Path) -> Any:
    """What a JSON file holds, :func:`escaped`.

    Raises:
        InputError: as :func:`require_regular`.
        OSError: it cannot be read.
        ValueError: it is no JSON, is nested too deeply, or holds a key twice.
    """
    try:
        return escaped(json.loads(read_bytes(path), object_pairs_hook=_each_once))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)} stands twice")
    return content


def parse_yaml(text: str, *, aliases: bool = False) -> Any:
    """What YAML holds: plain values, and no key twice.

    Args:
        text: YAML.
        aliases: of values, nine lines of which can stand for a billion values, may be in it.

    Raises:
        ValueError: it is something else, in one line; of a key that stands twice both lines are named.
    """
    try:
        return yaml.load(text, _Loader if aliases else _NoAliasLoader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except Exception as error:  # values such as 2001-99-99 make PyYAML raise nearly anything
        refuse_out_of_memory(error)
        raise ValueError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        lines: dict[str, int] = {}
        for name, line in self._names(node, "", set()):
            if name in lines:
                raise yaml.YAMLError(f"{name} stands in line {lines[name]} and again in line {line}; keep one of them")
            lines[name] = line
        return node

    def _names(self, node: yaml.Node | None, name: str, seen: set[int]) -> Iterator[tuple[str, int]]:
        """The full name and the line of every key; ``A.B`` at the top is the same as ``B`` in ``A``."""
        if id(node) in seen:  # an alias of it
            return
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for place, each in enumerate(node.value):
                yield from self._names(each, f"{name}[{place}]", seen)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                plain = isinstance(key, yaml.ScalarNode) and key.value not in ("<<", "=")
                last = self.construct_object(key) if plain else key.value  # as it is compared: yes and true are one
                full = f"{name}.{last}" if name else f"{last}"
                yield full, key.start_mark.line + 1
                yield from self._names(value, full, seen)


class _NoAliasLoader(_Loader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"line {self.peek_event().start_mark.line + 1}: write values out, without aliases")
        return super().compose_node(parent, index)


def misfit(value: Any, form: Any, key: str = "") -> str | None:
    """The first position at which plain data has not the form that it must have.

    Args:
        value: numbers, text, lists, dicts.
        form: a type or a tuple of types (``True`` is no ``int``); ``[form]`` for a list of it; or a dict of forms by
            key, where ``"key?"`` may be left out and ``str`` stands for all other keys. Of keys without a form only
            the names are looked at, which must be text.
        key: of the value.

    Returns:
        Where and what is wrong, in words; None where all fits.
    """
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return f"{key or 'it'} is {_told(value)}, not a mapping"
        if not all(isinstance(name, str) for name in value):
            return f"{key or 'it'} has keys that are no text"
        known = {str(name).removesuffix("?"): each for name, each in form.items() if name is not str}
        needed = [name for name in form if name is not str and not name.endswith("?")]
        if lacking := [name for name in needed if name not in value]:
            return f"{key or 'it'} has no {', '.join(lacking)}"
        inner = [(name, each, known.get(name, form.get(str, object))) for name, each in value.items()]
    elif isinstance(form, list):
        if not isinstance(value, list):
            return f"{key or 'it'} is {_told(value)}, not a list"
        inner = [(str(place), each, form[0]) for place, each in enumerate(value)]
    else:
        kinds = form if isinstance(form, tuple) else (form,)
        wanted = " or ".join(kind.__name__ for kind in kinds)
        fits = isinstance(value, kinds) and (object in kinds or bool in kinds or not isinstance(value, bool))
        return None if fits else f"{key} is {_told(value)}, not {wanted}"
    found = (misfit(each, inner_form, f"{key}.{name}" if key else name) for name, each, inner_form in inner)
    return next((fault for fault in found if fault is not None), None)


def _told(value: Any) -> str:
    return repr(value) if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"


def read_tensors(path: str | Path) -> dict[str, Any]:
    """What ``torch.save`` wrote, on the CPU, its keys text. Only tensors and plain values are loaded, never code.

    ``torch.save`` writes a zip archive with a checksum of every part, which ``torch.load`` does not look at: here they
    are compared, so that a file that has changed on its way is refused.

    Raises:
        InputError: the file is missing, cut short, or holds something else.
    """
    require_regular(path)
    try:
        _compare_checksums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a checkpoint file in it") from None
    except InputError:
        raise
    except Exception as error:  # torch reports damage in a dozen ways
        refuse_out_of_memory(error, path)
        raise InputError(
            f"{path}: cannot be loaded as tensors: damaged or of another kind ({_reason(error)})"
        ) from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: holds a {type(content).__name__}, not a checkpoint or a state dict")
    if fault := _not_all_there(content):
        raise InputError(f"{path}: {fault}; save tensors of plain numbers (torch.Tensor.contiguous) where it was made")
    return content


def _not_all_there(content: Any) -> str | None:
    """The first tensor that stands for more numbers than the file holds of it, in words; None where there is none.

    A few bytes can stand for any number of them, as an expanded tensor, a sparse one or one without content, which
    fill the memory as soon as they are worked with.
    """
    waiting = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            plain = value.layout == torch.strided and value.device.type == "cpu"
            if not plain or value.numel() * value.element_size() > value.untyped_storage().nbytes():
                return f"{name.lstrip('.')} has shape {tuple(value.shape)}, but fewer numbers are in the file"
        elif isinstance(value, dict):
            waiting += [(f"{name}.{key}", each) for key, each in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{name}.{place}", each) for place, each in enumerate(value)]
    return None


def _reason(error: Exception) -> str:
    """Why torch did not load a file, in a line. It advises to have the file's code run (``weights_only=False``)."""
    text = str(error).strip()
    if "weights_only" not in text:
        return text.splitlines()[0] if text else type(error).__name__
    named = re.search(r"GLOBAL (\S+)", text)
    return (
        f"it holds {named[1] if named else 'something'} beside tensors and plain values, which might run code and is "
        "not read; save the state_dict() alone where it was made"
    )


def _compare_checksums(path: str | Path) -> None:
    if not zipfile.is_zipfile(path):  # cut short, or in the format of torch before 1.6
        return
    with zipfile.ZipFile(path) as archive:
        if any(part.endswith("/constants.pkl") for part in archive.namelist()):
            raise InputError(
                f"{path}: is a TorchScript archive, which holds the code of a network and is not run; take its tensors "
                "alone, torch.save(torch.jit.load(FILE).state_dict(), 'weights.pt')"
            )
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise ValueError("it is compressed, which torch.save never does; a few bytes could fill the memory")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is wrong")
