"""Exemplars: images that a method may keep, after a task or out of a stream, and how they are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.memory.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
