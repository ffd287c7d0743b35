"""Networks that map images to feature vectors."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.models.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
