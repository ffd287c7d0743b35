"""Exemplars: images that a method stores after a task or from a stream, and the rules that select them."""

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.memory.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
