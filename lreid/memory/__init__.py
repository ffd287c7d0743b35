"""Select and store exemplars, which are images of earlier tasks or of a stream."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.memory.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
