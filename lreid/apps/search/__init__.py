"""The door of searching: images of one's own become a gallery, and a picture finds who is in it."""

from lreid.apps.search.answers import verdict
from lreid.apps.search.commands import add, build, calibrate, describe, query, remove
from lreid.apps.search.named_gallery import NamedGallery, Narrowing
from lreid.apps.search.own_images import list_images
from lreid.apps.search.versions import migrate, reindex, roll_back

__all__ = [
    "NamedGallery",
    "Narrowing",
    "add",
    "build",
    "calibrate",
    "describe",
    "list_images",
    "migrate",
    "query",
    "reindex",
    "remove",
    "roll_back",
    "verdict",
]
