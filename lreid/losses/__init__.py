"""Losses: pure functions, tensors in and a scalar out. They need nothing but torch."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lreid.losses.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # The names of all files at once, but only when the package is asked for one of them: lreid imports single files.
    if importlib.util.find_spec(f"lreid.losses.{name}"):
        raise AttributeError(name)  # the import system goes on to the file
    return getattr(importlib.import_module("lreid.losses.api"), name)


def __dir__() -> list[str]:
    return list(importlib.import_module("lreid.losses.api").__all__)
