"""Loss functions without state: each takes tensors and returns a scalar. This package needs only torch."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.losses.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
