"""Import the public names of a package when they are first used, so that importing single modules stays fast."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def public_names(
    package: str, homes: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Create the functions ``__getattr__`` and ``__dir__`` of a package.

    Args:
        homes: dictionary from each public name to its module; if it is empty, the names come from the package's module
            ``api``.
    """
    api = f"{package}.api"

    def get(name: str) -> Any:
        if not homes and (name == "__all__" or not _is_file(package, name)):
            return getattr(importlib.import_module(api), name)
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        # After this error, the import system looks for a module of this name.
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted(homes or importlib.import_module(api).__all__)

    return get, names


def _is_file(package: str, name: str) -> bool:
    """Whether a name belongs to a module of the package, or is a special name such as ``__path__``."""
    return name.startswith("__") or importlib.util.find_spec(f"{package}.{name}") is not None
