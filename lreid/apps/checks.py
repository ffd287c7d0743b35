"""Check files, names and config keys of a command line before torch is imported, which takes seconds.

The library repeats these checks, because programs can use it without a command line.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from lreid.config import check_values, load_config
from lreid.config_keys import Config
from lreid.errors import InputError, naming_keys
from lreid.utils.reading import compare_checksums, raise_if_unreadable, require_regular
from lreid.utils.rules import device_fault
from lreid.zoo.names import PREFIX, is_entry

ELSEWHERE = ("hub:", "milvus:")  # prefixes of models and galleries that are not files


def require_device(device: str | None) -> None:
    """Require that ``--device``, if given, is the name of a device."""
    if device and (fault := device_fault(device)):
        raise InputError(f"--device is {device!r}; {fault}")


def checked_config(files: Sequence[Path], overrides: Sequence[str]) -> Config:
    """Read config files and ``KEY VALUE`` pairs, and require that the method and all values are valid."""
    from lreid.methods import method_class, method_names

    cfg = load_config(files, overrides, report=False)
    if cfg.METHOD.NAME not in method_names():
        with naming_keys("METHOD"):
            method_class(cfg.METHOD.NAME)
    check_values(cfg)
    if cfg.DATA.PATTERN:
        require_pattern("DATA.PATTERN", cfg.DATA.PATTERN)
    return cfg


def require_pattern(name: str, pattern: str) -> None:
    """Require that the value of the option or config key ``name`` is a pattern of image paths."""
    from lreid.data.listing import Pattern  # rarely needed

    with naming_keys(pattern=name):
        Pattern(pattern)


def require_path(path: str | Path | None, advice: str = "check the path") -> None:
    """Require that a file or folder exists, if it is given and its address is not outside the file system."""
    if path and not str(path).startswith(ELSEWHERE):
        try:
            os.stat(path)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file or folder; {advice}") from None


def require_model(source: str | Path | None) -> None:
    """Require that a model, if it is given, is an entry of the zoo, or an undamaged checkpoint or model file."""
    if source is None:
        return
    name = str(source)
    if is_entry(name) and not name.startswith(ELSEWHERE):
        from lreid.zoo.card import find

        find(name.removeprefix(PREFIX))
        return
    require_path(name)
    require_regular(name)
    if os.path.isfile(name) and name.endswith(".safetensors"):
        _require_safetensors(Path(name))
    elif os.path.isfile(name) and not name.endswith(".onnx"):
        try:
            compare_checksums(name, legacy=False)
        except Exception as error:  # damage shows in many kinds of exceptions
            raise_if_unreadable(error, name)
            raise InputError(f"{name}: damaged, or not a checkpoint ({error}); use one of lreid train") from None


def _require_safetensors(weights: Path) -> None:
    from safetensors import SafetensorError, safe_open

    from lreid.zoo.card import card_beside

    card_beside(weights)
    try:
        with safe_open(weights, "numpy"):
            pass
    except SafetensorError as error:
        raise InputError(f"{weights}: cannot be loaded as safetensors ({error}); download it again") from None
