"""Code outside lreid: optional dependencies, which ``pip install lreid`` does not install, and plug-ins of users."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, TypeVar

from lreid.errors import ArgumentError, InputError, raise_if_out_of_memory

Item = TypeVar("Item")

PLUGINS = "lreid.plugins"  # group of the entry points of installed plug-ins
imported: dict[str, str] = {}  # the plug-ins of this process: module, and the name or absolute path that was imported


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


def import_plugins(names: Iterable[str] = ()) -> None:
    """Import installed plug-ins (entry points of the group ``lreid.plugins``) and named ones, each once per process.

    A plug-in registers methods, backbones, data sets, metrics, loggers or optimisers when it is imported.

    Args:
        names: full names of modules, or paths of files ``MODULE.py``. Modules may lie in the working directory, and a
            file may import modules in its folder.

    Raises:
        InputError: a plug-in does not exist, raises an error (its traceback is printed to standard error), or registers
            a name of lreid.
    """
    for name in [*(entry.module for entry in entry_points(group=PLUGINS)), *names]:
        file = os.path.abspath(name) if name.endswith(".py") else ""
        module, folder = (Path(file).stem, os.path.dirname(file)) if file else (name, os.getcwd())
        if imported.get(module) != (file or name):
            if folder not in sys.path:
                sys.path.append(folder)
            _import_plugin(name, module, file)
            imported[module] = file or name


def _import_plugin(name: str, module: str, file: str) -> None:
    try:
        origin = import_module(module).__file__ or ""
    except InputError as error:
        raise InputError(f"--import {name}: {error}") from None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and module.startswith(str(error.name)):
            raise InputError(f"--import {name}: does not exist; check the path, or install the module") from None
        traceback.print_exc()
        raise InputError(f"--import {name}: raises {type(error).__name__} ({error}); see the traceback above") from None
    if file and os.path.realpath(file) != os.path.realpath(origin):
        raise InputError(f"--import {name}: {origin} has the same module name; rename your file")


def registrar(registry: dict[str, Any], name: str, noun: str, *, own: bool = False) -> Callable[[Item], Item]:
    """Return a decorator that adds a class or function to a registry.

    A module may register a name again, so that a notebook cell may run twice.

    Args:
        registry: what is registered, by name.
        name: the new name.
        noun: what is registered, with its article.
        own: whether lreid itself has something of this name that is not in the registry.

    Raises:
        ArgumentError: lreid or another plug-in has something of this name.
    """

    def decorate(value: Item) -> Item:
        module = getattr(registry.get(name, value), "__module__", "")
        if own or module != getattr(value, "__module__", ""):
            owner = "lreid" if own else module
            raise ArgumentError("name", f"is {name}, which is {noun} of {owner}; choose a different name")
        registry[name] = value
        return value

    return decorate
