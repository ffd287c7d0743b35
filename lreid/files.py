"""Files that are whole or not there: atomic writing, and reading tensors without running code from them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from lreid.errors import InputError


def write_atomically(path: str | Path, write: Callable[[IO[bytes]], Any], *, previous: Path | None = None) -> None:
    """Writes a file through a temporary one beside it, so that a reader never sees half of it.

    Args:
        path: the file; one that exists is replaced when the new one is complete.
        write: called with the open binary file.
        previous: what is replaced stays under this name.

    Raises:
        InputError: the folder cannot be written to or the disk is full; what was there before stays.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        if previous is not None and path.exists():
            path.replace(previous)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        reason = str(error)
        if isinstance(error, RuntimeError):  # torch.save hides why a write failed, mostly a full disk
            reason = f"the write broke off; {shutil.disk_usage(path.parent).free >> 20} MiB are free on the disk"
        raise InputError(
            f"{path}: cannot be written ({reason}); what was saved before is whole: "
            "free some space or mend the permissions, then start again; training goes on with --resume"
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes UTF-8 text with :func:`write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, is nested too deeply, or holds text that cannot be written again.
    """
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # no halves of characters (lone surrogates)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return content


def misfit(value: Any, form: Any, key: str = "") -> str | None:
    """The first place where plain data has not the form that it must have.

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
    try:
        _compare_checksums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name a checkpoint file in it") from None
    except Exception as error:  # torch reports damage in a dozen ways
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: cannot be loaded as tensors: damaged or of another kind ({reason})") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: holds a {type(content).__name__}, not a checkpoint or a state dict")
    return content


def _compare_checksums(path: str | Path) -> None:
    if not zipfile.is_zipfile(path):  # cut short, or in the format of torch before 1.6
        return
    with zipfile.ZipFile(path) as archive:
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise ValueError("it is compressed, which torch.save never does; a few bytes could fill the memory")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is wrong")
