"""Read state dicts of other programs: plain, under the key ``model`` or ``state_dict``, or in safetensors files."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from lreid.errors import InputError
from lreid.utils.reading import naming_damage, read_tensors, require_regular

# torchreid's checkpoints contain a Rank-1 of this NumPy type next to the weights; NumPy 1 has it in another module.
_scalar = np.float64(0).__reduce__()[0]
NUMPY_SCALARS: list[Any] = [
    *((_scalar, f"{numpy}.multiarray.scalar") for numpy in ("numpy.core", "numpy._core")),
    np.dtype,
    type(np.dtype(np.float64)),
    type(np.dtype(np.float32)),
]


def read_state_dict(file: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name, onto the CPU.

    From the names, lreid removes the prefixes ``module.`` (training on several devices) and ``_orig_mod.`` (compiled
    networks).

    Raises:
        InputError: the file is missing or damaged, or contains no named tensors.
    """
    if str(file).endswith(".safetensors"):
        state = read_safetensors(Path(file))
    else:
        with torch.serialization.safe_globals(NUMPY_SCALARS):
            content = read_tensors(file)
        # Checkpoints of lreid and fast-reid have "model", those of torchreid "state_dict"; else a plain state dict.
        layouts = [content.get("model"), content.get("state_dict"), content]
        inner = {key: each for key, each in content.items() if _is_state_dict(each)}
        if len(inner) == 1:
            layouts += inner.values()
        state = next((each for each in layouts if _is_state_dict(each)), {})
        if not state and inner:
            raise InputError(f"{file}: contains tensors under {', '.join(inner)}; save only those of one network")
        same = (key for key, each in content.items() if each is not state and _same_names(state, each))
        if (other := next(same, None)) is not None:
            raise InputError(f"{file}: contains a second network under {other}; save only the tensors of one")
        if not state:
            raise InputError(f"{file}: holds no named tensors at the top, under model or state_dict; pass a state dict")
    return {_bare(key): value for key, value in state.items() if isinstance(value, Tensor)}


def _bare(key: str) -> str:
    return re.sub(r"^(module\.)+", "", re.sub(r"(?<![^.])_orig_mod\.", "", key))


def _same_names(state: Any, other: Any) -> bool:
    """Whether another part of a file, such as moving averages of the weights, has most names of a state dict."""
    other = other.get("module", other) if isinstance(other, dict) else {}
    names, keys = set(map(_bare, state)), [_bare(str(key)) for key in other]
    return 2 * len(names.intersection([*keys, *(key.partition(".")[2] for key in keys)])) > len(names) > 0


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, onto the CPU.

    Raises:
        InputError: the file is missing or damaged.
    """
    require_regular(file)
    with naming_damage(file, "cannot be loaded as safetensors", "download it again"):
        return safetensors.torch.load_file(file)


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(key, str) for key in value)
        and any(isinstance(each, Tensor) for each in value.values())
    )
