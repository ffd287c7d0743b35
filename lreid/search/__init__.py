"""Search a gallery of your images: find out who is in an image, and whether that person is enrolled."""

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.search.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
