"""Read tensors from untrusted files, without running code in a file or filling the memory."""

import re
from pathlib import Path
from typing import Any

import torch

from lreid.errors import InputError
from lreid.utils.reading import compare_checksums, raise_if_unreadable, require_regular


def read_tensors(path: str | Path) -> dict[str, Any]:
    """Read a dictionary of tensors and plain values from a ``torch.save`` file onto the CPU, without running code.

    ``torch.save`` writes a zip archive with a checksum of every part. ``torch.load`` does not verify the checksums of a
    file. This function verifies all checksums, so it refuses a file with changed bytes.

    Raises:
        InputError: the file is missing or damaged, or contains other objects than tensors and plain values.
    """
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
    if fault := _not_all_there(content):
        raise InputError(
            f"{path}: {fault}; save contiguous tensors (torch.Tensor.contiguous) with the program that wrote it"
        )
    return content


def _not_all_there(content: Any) -> str | None:
    """Describe the first tensor that has more numbers than the file contains; None if there is none.

    A small file can describe a tensor of any size (expanded, sparse or meta) that would fill the memory when it is
    used.
    """
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
    """Return torch's reason for not loading a file in one line, without its advice to allow code in the file."""
    text = str(error).strip()
    if "weights_only" not in text:
        return text.splitlines()[0] if text else type(error).__name__
    named = re.search(r"GLOBAL (\S+)", text)
    return (
        f"it contains {named[1] if named else 'something'} besides tensors and plain values, which might run code and "
        "is not read; save only the state_dict(), with the program that wrote the file"
    )
