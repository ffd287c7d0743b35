"""Read untrusted text, JSON, YAML and tensors; refuse devices, duplicate keys, code, and formats of later versions."""

import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lreid.errors import InputError, UnknownFormat, raise_if_out_of_memory

NUMBER = (int, float)  # form of a number for :func:`misfit`
NAMES = {dict: "a mapping", list: "a list"}  # names of types in messages


def require_regular(path: str | Path) -> None:
    """Refuse pipes (FIFOs), sockets and devices, because reading them may never end.

    Missing paths and folders are accepted, because reading them raises an error anyway.

    Raises:
        InputError: the path is a pipe (FIFO), a socket or a device.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{path}: is a pipe, a socket or a device; save its content in a file, and pass that")


def raise_if_unreadable(error: Exception, path: str | Path, kind: str = "file", advice: str = "check the path") -> None:
    """Raise an InputError if reading failed for another reason than damage; call this before reporting damage.

    Args:
        error: the exception that the reader raised.
        kind: name of this kind of file in error messages, such as ``CSV file``.
        advice: advice for the case that the file is missing.

    Raises:
        InputError: ``error`` itself is an InputError; the file is missing, is a folder, or may not be read; or memory
            ran out.
    """
    if isinstance(error, InputError):
        raise error
    if isinstance(error, FileNotFoundError):
        raise InputError(f"{path}: no such {kind}; {advice}") from None
    if isinstance(error, IsADirectoryError):
        raise InputError(f"{path}: is a folder; name a {kind} in it") from None
    if isinstance(error, PermissionError):
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct its permissions") from None
    raise_if_out_of_memory(error, path)


@contextmanager
def naming_damage(path: str | Path, fault: str, advice: str, kind: str = "file") -> Iterator[None]:
    """Within a context, report every error of a reader in one line: ``PATH: FAULT (reason); ADVICE``.

    Damaged files raise exceptions of many kinds. Other reasons than damage are reported by
    :func:`raise_if_unreadable`, which also explains ``kind``.
    """
    try:
        yield
    except Exception as error:
        raise_if_unreadable(error, path, kind)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: {fault} ({reason}); {advice}") from None


def require_not_newer(path: str | Path, version: Any, newest: int, fault: str) -> None:
    """Refuse a file whose format number is too new, which would otherwise be reported as damaged.

    Args:
        version: format number of the file.
        newest: largest supported format number.
        fault: description of the file for the error message, such as ``not a gallery of this version``.

    Raises:
        UnknownFormat: ``version`` is larger than ``newest``.
    """
    if isinstance(version, (int, float)) and version > newest:
        raise UnknownFormat(f"{path}: {fault}: a later version wrote it (format {version}, not {newest}); update lreid")


def read_bytes(path: str | Path) -> bytes:
    """Read the content of a file.

    Raises:
        InputError: see :func:`require_regular`.
        OSError: the file cannot be read.
    """
    require_regular(path)
    return Path(path).read_bytes()


def read_text(path: str | Path, *, errors: str = "strict") -> str:
    """Read a UTF-8 text file, without a byte-order mark.

    Raises:
        InputError: see :func:`require_regular`.
        OSError: the file cannot be read.
        ValueError: the file is not UTF-8.
    """
    require_regular(path)
    return Path(path).read_text(encoding="utf-8-sig", errors=errors)


def escaped(value: Any) -> Any:
    r"""Replace lone surrogates in plain data by text such as ``\udcff``, so that everything can be written as UTF-8.

    Python represents a file name that is not UTF-8 (but GBK, for example) by lone surrogates.

    Args:
        value: text, a number, None, or a list, tuple or dict of such values. Text without lone surrogates is unchanged.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [escaped(each) for each in value]
    if isinstance(value, dict):
        return {escaped(key): escaped(each) for key, each in value.items()}
    return value


def compare_checksums(path: str | Path, *, legacy: bool = True) -> None:
    """Verify the checksum of every part of a file that ``torch.save`` wrote, without using torch.

    Args:
        legacy: whether to accept a file that is not a zip archive, without any check. torch before version 1.6 wrote
            such files.

    Raises:
        InputError: the file is a TorchScript archive.
        ValueError: the file is damaged, or ``torch.save`` did not write it.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:  # is_zipfile would hide that the file cannot be read
        if not zipfile.is_zipfile(file):
            if legacy:
                return
            raise ValueError("it is not an archive of torch.save")
        with zipfile.ZipFile(file) as archive:
            if any(part.endswith("/constants.pkl") for part in archive.namelist()):
                raise InputError(
                    f"{path}: is a TorchScript archive, whose code lreid does not run; save only its tensors: "
                    "torch.save(torch.jit.load(FILE).state_dict(), 'weights.pt')"
                )
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise ValueError("it is compressed, which torch.save never does; a few bytes could fill the memory")
            damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is wrong")


def read_tensors(path: str | Path) -> dict[str, Any]:
    """Read a dictionary of tensors and plain values from a ``torch.save`` file onto the CPU, without running code.

    ``torch.save`` writes a zip archive with a checksum of every part. ``torch.load`` does not verify the checksums of a
    file. This function verifies all checksums, so it refuses a file with changed bytes.

    Raises:
        InputError: the file is missing or damaged, or contains other objects than tensors and plain values.
    """
    import torch  # here, because commands that read no tensors start without torch

    require_regular(path)
    try:
        compare_checksums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds of exceptions for damaged files
        raise_if_unreadable(error, path)
        raise InputError(
            f"{path}: cannot be loaded as tensors: it is damaged or of a different kind ({_reason(error)}); "
            "name a file that torch.save wrote"
        ) from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: contains a {type(content).__name__}, not a checkpoint or a state dict")
    if fault := _incomplete_tensor(content):
        raise InputError(f"{path}: {fault}; save contiguous tensors with the program that wrote it")
    return content


def _incomplete_tensor(content: Any) -> str | None:
    """Describe the first tensor that has more numbers than the file contains; None if there is none."""
    import torch

    # A small file can describe a tensor of any size (expanded, sparse or meta), which would fill the memory in use.
    waiting = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            plain = value.layout == torch.strided and value.device.type == "cpu"
            if not plain or value.numel() * value.element_size() > value.untyped_storage().nbytes():
                return f"{name.lstrip('.')} has shape {tuple(value.shape)}, but the file contains fewer numbers"
        elif isinstance(value, dict):
            waiting += [(f"{name}.{key}", each) for key, each in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{name}.{place}", each) for place, each in enumerate(value)]
    return None


def _reason(error: Exception) -> str:
    """Return the reason that torch gives, in one line, without its advice to allow code in the file."""
    text = str(error).strip()
    if "weights_only" not in text:
        return text.splitlines()[0] if text else type(error).__name__
    named = re.search(r"GLOBAL (\S+)", text)
    return (
        f"it contains {named[1] if named else 'something'} besides tensors and plain values, which might run code and "
        "is not read; save only the state_dict(), with the program that wrote the file"
    )


def read_json(path: Path) -> Any:
    """Read a JSON file and apply :func:`escaped` to its content.

    Raises:
        InputError: see :func:`require_regular`.
        OSError: the file cannot be read.
        ValueError: the file is not JSON, is nested too deeply, or contains a key twice.
    """
    try:
        return escaped(json.loads(read_bytes(path), object_pairs_hook=_each_once))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)} occurs twice")
    return content


def parse_yaml(text: str, *, aliases: bool = False) -> Any:
    """Parse YAML to plain values; refuse duplicate keys, and aliases too unless ``aliases`` is True.

    By default, aliases are refused because nine lines with aliases can expand to a billion values.

    Raises:
        ValueError: the text is invalid; the message is one line, with both line numbers of a duplicate key.
    """
    try:
        return yaml.load(text, _Loader if aliases else _NoAliasLoader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except Exception as error:  # PyYAML raises many kinds of exceptions, for instance for the date 2001-99-99
        raise_if_out_of_memory(error)
        raise ValueError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which itself takes the last of several equal keys."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[Any, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            # YAML's yes and true are the same key; << and = are not values.
            name = key.value if key.value in ("<<", "=") else self.construct_object(key)
            line = key.start_mark.line + 1
            if name in lines:
                raise yaml.YAMLError(f"{name} is in line {lines[name]} and again in line {line}; remove one of the two")
            lines[name] = line
        return node


class _NoAliasLoader(_Loader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"line {self.peek_event().start_mark.line + 1}: replace the alias by its value")
        return super().compose_node(parent, index)


def misfit(value: Any, form: Any, key: str = "") -> str | None:
    """Find the first position at which plain data does not have a required form.

    Args:
        value: plain data: numbers, text, lists and dicts.
        form: required form: a type or a tuple of types (``True`` is not an ``int``); ``[form]`` for a list of values of
            this form; or a dict from keys to forms. A question mark after a key makes it optional. The form under the
            key ``str`` (the type) applies to all keys that the dict does not list; None refuses such keys. Without an
            entry for ``str``, values of unlisted keys are not checked. All keys must be text.
        key: name of the value for the message.

    Returns:
        Text with the position and the fault, or None if the data have the required form.
    """
    kinds = form if isinstance(form, tuple) else (type(form) if isinstance(form, (dict, list)) else form,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and not {bool, object} & {*kinds}):
        shown = repr(value) if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
        return f"{key or 'it'} is {shown}, not {' or '.join(NAMES.get(kind, kind.__name__) for kind in kinds)}"
    inner: list[tuple[Any, Any, Any]] = []
    if isinstance(form, list):
        inner = [(place, each, form[0]) for place, each in enumerate(value)]
    elif isinstance(form, dict):
        forms = {name.removesuffix("?"): each for name, each in form.items() if name is not str}
        if not all(isinstance(name, str) for name in value):
            return f"{key or 'it'} has keys that are not text"
        if lacking := [name for name in forms if name in form and name not in value]:
            return f"{key or 'it'} has no {', '.join(lacking)}"
        others = form.get(str, object)
        if others is None and (unknown := [name for name in value if name not in forms]):
            return f"{f'{key}.' if key else ''}{unknown[0]} is unknown; it may have the keys {', '.join(forms)}"
        inner = [(name, each, forms.get(name, others)) for name, each in value.items()]
    faults = (misfit(each, inner_form, f"{key}.{name}" if key else str(name)) for name, each, inner_form in inner)
    return next((fault for fault in faults if fault is not None), None)
