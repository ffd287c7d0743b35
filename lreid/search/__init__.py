"""Search a gallery of your images: who is the person in an image, and is this person enrolled at all?"""

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.search.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
