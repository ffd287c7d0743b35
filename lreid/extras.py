"""Optional dependencies, which ``pip install lreid`` does not install."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lreid.errors import InputError, refuse_out_of_memory


class Extra:
    """A module of an optional dependency, imported at its first use; if it is missing, the error names the extra.

        cv2 = Extra("cv2", "opencv")
        cv2.flip(image, 1)

    Raises:
        InputError: at the first use, if the module cannot be imported; the message has the pip command.
    """

    def __init__(self, module: str, extra: str) -> None:
        self._module, self._extra = module, extra

    def load(self) -> Any:
        """Import and return the module at once, to check early that it is installed."""
        try:
            return import_module(self._module)
        except ImportError as error:
            refuse_out_of_memory(error, self._module)
            raise InputError(
                f"{self._module} cannot be imported ({error}); install it with: pip install 'lreid[{self._extra}]'"
            ) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look up special methods
            raise AttributeError(name)
        value = getattr(self.load(), name)
        setattr(self, name, value)
        return value


def installed_version(package: str) -> str | None:
    """The version of a package; None if it is not installed, as is lreid itself in a mere source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
