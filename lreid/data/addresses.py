"""Which images have no file of their own: those that lreid draws, and those that come with it in an archive."""

from __future__ import annotations

from lreid.data.rendered_set import is_rendered
from lreid.data.synthetic import is_synthetic


def is_address(path: str) -> bool:
    """Whether a record's path, or the name of a data set, leads to no file of the user's."""
    return is_synthetic(path) or is_rendered(path)
