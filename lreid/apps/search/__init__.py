"""Search a gallery of your own images: who is on this image, and is it anybody enrolled?"""

from lreid.apps.search.command_line import run
from lreid.apps.search.commands import add, build, calibrate, describe, query, remove
from lreid.apps.search.findings import verdict
from lreid.apps.search.named_gallery import NamedGallery
from lreid.apps.search.own_images import list_images
from lreid.apps.search.versions import migrate, reindex, roll_back

__all__ = [
    "NamedGallery",
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
    "run",
    "verdict",
]
