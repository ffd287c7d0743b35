"""Optional dependencies, which ``pip install lreid`` does not install."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
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
