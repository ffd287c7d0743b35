"""Store exemplars, images of earlier tasks or of a stream, and select them by several rules."""

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.memory.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
