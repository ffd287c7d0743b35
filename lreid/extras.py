"""Packages that ``pip install lreid`` leaves out, as only some work needs them."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lreid.errors import InputError, refuse_out_of_memory


class Extra:
    """A module of such a package: loaded when something of it is first used, and asked for by name where it is missing.

        cv2 = Extra("cv2", "opencv")
        cv2.flip(image, 1)

    Raises:
        InputError: at its first use, with the pip command, if it cannot be imported.
    """

    def __init__(self, module: str, extra: str) -> None:
        self._module, self._extra = module, extra

    def load(self) -> Any:
        """The module itself, for those who want to know early that it is there."""
        try:
            return import_module(self._module)
        except ImportError as error:
            refuse_out_of_memory(error, self._module)
            raise InputError(
                f"{self._module} cannot be imported ({error}); install it with: pip install 'lreid[{self._extra}]'"
            ) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look for their own
            raise AttributeError(name)
        value = getattr(self.load(), name)
        setattr(self, name, value)
        return value


def installed_version(package: str) -> str | None:
    """The version of a package; None where it is not installed, as lreid itself in its bare source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
