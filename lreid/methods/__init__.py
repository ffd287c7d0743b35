"""Lifelong methods: one file each, found by the file's name."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from typing import Any

from lreid.errors import InputError
from lreid.methods.base import Method
from lreid.models import Embedder

__all__ = ["Method", "build_method", "method_class", "method_names"]


def method_names() -> list[str]:
    """Names of all methods, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "base")


def method_class(name: str) -> type[Method]:
    """The class that the file ``lreid/methods/<name>.py`` defines.

    Raises:
        InputError: there is no such method; the nearest known one is named.
    """
    if name not in method_names():
        nearest = difflib.get_close_matches(name, method_names(), n=1, cutoff=0.0)[0]
        raise InputError(f"METHOD.NAME: unknown method {name!r}; the nearest known one is {nearest}")
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [
        value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Method)
    ]
    return next(found for found in classes if found.__module__ == module.__name__)


def method_defaults(cls: type[Method]) -> dict[str, Any]:
    """Options that a method takes, with their defaults; those handed on to its bases are included."""
    options: dict[str, Any] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base) and issubclass(base, Method):
            for name, parameter in inspect.signature(base.__init__).parameters.items():
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
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
            nearest = difflib.get_close_matches(option, defaults, n=1, cutoff=0.0)[0]
            raise InputError(
                f"METHOD.{option.upper()}: {name} has no such option; the nearest one is METHOD.{nearest.upper()}"
            )
        wanted = (int, float) if isinstance(defaults[option], float) else type(defaults[option])
        if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(defaults[option], bool):
            raise InputError(
                f"METHOD.{option.upper()}: must be like {defaults[option]!r} for {name}, got {value!r}"
            )
    return cls(model, **options)
