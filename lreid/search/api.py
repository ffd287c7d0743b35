"""Public names of :mod:`lreid.search`."""

from lreid.search.commands import Layout, Wanted, add, build, calibrate, describe, query, remove
from lreid.search.findings import verdict, write_findings
from lreid.search.image_list import list_images
from lreid.search.named_gallery import NamedGallery
from lreid.search.versions import migrate, reindex, roll_back

__all__ = [
    "Layout",
    "NamedGallery",
    "Wanted",
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
    "write_findings",
]
