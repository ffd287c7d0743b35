"""Lifelong learning methods: each module of this package defines one method, and scripts can register more."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import lazy_loader

from lreid.errors import ArgumentError, nearest_name, require
from lreid.utils.extras import registrar
from lreid.utils.rules import Rule

if TYPE_CHECKING:
    from lreid.methods.base import Method
    from lreid.models.embedder import Embedder

__all__ = ["Method", "build_method", "method_class", "method_defaults", "method_names", "method_rules", "register"]

# Method is imported on first use, so that listing the names of methods does not import torch.
__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"base": ["Method"]})
_registered: dict[str, type[Method]] = {}


def register(name: str) -> Callable[[type[Method]], type[Method]]:
    """Register a class outside this package as ``METHOD.NAME`` for this process.

    To load a model that was trained with a registered class, lreid does not need the class. To resume a run with a
    registered class, register the class again first. Registering the same name again replaces the class, so a notebook
    cell may run twice.

    Raises:
        ArgumentError: lreid or a plug-in already has a method of this name.
    """
    return registrar(_registered, name, "a method", own=name in _file_names())


def method_names() -> list[str]:
    """Names of all methods, sorted."""
    return sorted([*_file_names(), *_registered])


def _file_names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]


def method_class(name: str) -> type[Method]:
    """Return the class of a method: a file ``lreid/methods/<name>.py`` defines it, or a script registered it.

    Raises:
        ArgumentError: there is no method of this name; the message suggests the most similar name.
    """
    if name not in method_names():
        nearest = nearest_name(name, method_names())
        raise ArgumentError("name", f"{name!r} is no method; the nearest name is {nearest}")
    if name in _registered:
        return _registered[name]
    from lreid.methods.base import Method

    module = importlib.import_module(f"{__name__}.{name}")
    classes = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Method)]
    return next(cls for cls in classes if cls.__module__ == module.__name__ and cls.__name__[0] != "_")


def method_defaults(cls: type[Method]) -> dict[str, Any]:
    """Return the options of a method with their defaults, including the options of its base classes."""
    options: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, default in vars(base).get("defaults", {}).items():
            options.setdefault(name, default)
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters
        for name, parameter in parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                if parameter.default is inspect.Parameter.empty:
                    raise ArgumentError(
                        name, f"of {base.__name__} has no default; add one, because it determines the option's type"
                    )
                options.setdefault(name, parameter.default)
        if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            break  # this class passes no options to its base class
    return options


def method_rules(cls: type[Method]) -> dict[str, Rule]:
    """Return the meaning and the limits of each option of a method, including the options of its base classes.

    The choices of an option whose type is a ``Literal`` are the values of the ``Literal``.
    """
    rules: dict[str, Rule] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            for name, hint in get_type_hints(vars(base)["__init__"], include_extras=True).items():
                for each in getattr(hint, "__metadata__", ()):
                    rules.setdefault(name, replace(each, choices=each.choices or get_args(hint.__origin__)))
    return {name: rules[name] for name in method_defaults(cls) if name in rules}


def build_method(name: str, model: Embedder, **options: Any) -> Method:
    """Create a method by its name.

    Raises:
        ArgumentError: the method or one of its options is unknown, or an option has a wrong type or value.
    """
    cls = method_class(name)
    defaults, rules = method_defaults(cls), method_rules(cls)
    for option, value in options.items():
        if option not in defaults:
            nearest = difflib.get_close_matches(option, defaults, n=1, cutoff=0.0)
            raise ArgumentError(option, f"is no option of {name}{'' if nearest else '; it takes none'}", *nearest)
        expected_type = (int, float) if isinstance(defaults[option], float) else type(defaults[option])
        is_valid = isinstance(value, expected_type) and isinstance(value, bool) == isinstance(defaults[option], bool)
        require(is_valid, option, value, f"like {defaults[option]!r} for {name}")
        if isinstance(value, float):
            require(math.isfinite(value), option, value, "a finite number")
        if option in rules and (fault := rules[option].fault(value)):
            raise ArgumentError(option, f"is {value!r}; {fault}")
    return cls(model, **options)
