"""Lifelong methods: one file each, found by the file's name, and those that a script of one's own registers."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from lreid.errors import InputError
from lreid.methods.base import Method
from lreid.models import Embedder

__all__ = ["Method", "build_method", "method_class", "method_names", "register"]

_registered: dict[str, type[Method]] = {}


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Makes a class outside this package known as ``METHOD.NAME``, as long as the process lives.

    A checkpoint of such a run is loaded again where the class is registered again. In a notebook a cell that is run
    twice puts the new class in the place of the old one.

    Raises:
        InputError: a file of this package has that name.
    """
    if name in _file_names():
        raise InputError(f"METHOD.NAME: {name} comes with lreid; register a method of your own under another name")

    def decorate(cls: type[Method]) -> type[Method]:
        _registered[name] = cls
        return cls

    return decorate


def method_names() -> list[str]:
    """Names of all methods, sorted."""
    return sorted([*_file_names(), *_registered])


def _file_names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]


def method_class(name: str) -> type[Method]:
    """The class that the file ``lreid/methods/<name>.py`` defines, or that was registered.

    Raises:
        InputError: there is no such method; the nearest known one is named.
    """
    if name not in method_names():
        nearest = difflib.get_close_matches(name, method_names(), n=1, cutoff=0.0)[0]
        raise InputError(f"METHOD.NAME: unknown method {name!r}; the nearest known one is {nearest}")
    if name in _registered:
        return _registered[name]
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Method)]
    return next(found for found in classes if found.__module__ == module.__name__)


def method_defaults(cls: type[Method]) -> dict[str, Any]:
    """Options that a method takes, with their defaults; those handed on to its bases are included.

    Raises:
        InputError: one has no default.
    """
    options: dict[str, Any] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base) and issubclass(base, Method):
            for name, parameter in inspect.signature(base.__init__).parameters.items():
                if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                    continue
                if parameter.default is inspect.Parameter.empty:
                    raise InputError(f"{base.__name__}: its option {name} needs a default, as METHOD.{name.upper()}")
                options.setdefault(name, parameter.default)
    return options


def build_method(name: str, model: Embedder, **options: Any) -> Method:
    """A method by name.

    Raises:
        InputError: the method or one of its options is unknown, or an option has the wrong type.
    """
    cls = method_class(name)
    defaults = method_defaults(cls)
    for option, value in options.items():
        if option not in defaults:
            nearest = difflib.get_close_matches(option, defaults, n=1, cutoff=0.0)
            hint = f"the nearest one is METHOD.{nearest[0].upper()}" if nearest else "it takes none"
            raise InputError(f"METHOD.{option.upper()}: {name} has no such option; {hint}")
        wanted = (int, float) if isinstance(defaults[option], float) else type(defaults[option])
        if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(defaults[option], bool):
            raise InputError(f"METHOD.{option.upper()}: must be like {defaults[option]!r} for {name}, got {value!r}")
    return cls(model, **options)
