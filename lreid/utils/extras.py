"""Import optional dependencies, and the public names of packages, when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from lreid.errors import InputError, raise_if_out_of_memory


class Extra:
    """Import a module of an optional dependency when it is first used; errors name the extra to install.

        cv2 = Extra("cv2", "opencv")
        cv2.flip(image, 1)

    Raises:
        InputError: the module cannot be imported when it is first used; the message gives the pip command.
    """

    def __init__(self, module: str, extra: str) -> None:
        self._module, self._extra = module, extra

    def load(self) -> Any:
        """Import and return the module now, so that errors about a missing package come early."""
        try:
            return import_module(self._module)
        except (ImportError, RuntimeError) as error:  # faiss-gpu raises RuntimeError if a CUDA library is missing
            raise_if_out_of_memory(error, self._module)
            advice = f"; install it with: pip install 'lreid[{self._extra}]'" if isinstance(error, ImportError) else ""
            raise InputError(f"{self._module} cannot be imported ({error}){advice}") from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look up special methods
            raise AttributeError(name)
        value = getattr(self.load(), name)
        setattr(self, name, value)
        return value


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def public_names(
    package: str, homes: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Create the functions ``__getattr__`` and ``__dir__`` of a package, so that importing single modules stays fast.

    Args:
        homes: dictionary from each public name to its module; if it is empty, the names come from the package's module
            ``api``.
    """
    api = f"{package}.api"

    def get(name: str) -> Any:
        home = homes.get(name) if homes else api
        special = name.startswith("__") and name != "__all__"
        if home is None or special or find_spec(f"{package}.{name}"):
            # After this error, the import system looks for a module of this name.
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    return get, lambda: sorted(homes or import_module(api).__all__)
