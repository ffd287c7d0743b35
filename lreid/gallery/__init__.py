"""Galleries: store features and labels of images, search them, change them, and check a new model against them."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.gallery.commands import Layout, Wanted, add, build, calibrate, describe, query, remove
    from lreid.gallery.filters import Filter
    from lreid.gallery.findings import verdict, write_findings
    from lreid.gallery.gallery import Gallery, Matches
    from lreid.gallery.image_list import list_images
    from lreid.gallery.named_gallery import NamedGallery
    from lreid.gallery.versions import migrate, reindex, roll_back

__all__ = [
    "Filter",
    "Gallery",
    "Layout",
    "Matches",
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

__getattr__, __dir__ = public_names(
    __name__,
    {
        "Filter": "lreid.gallery.filters",
        "Gallery": "lreid.gallery.gallery",
        "Layout": "lreid.gallery.commands",
        "Matches": "lreid.gallery.gallery",
        "NamedGallery": "lreid.gallery.named_gallery",
        "Wanted": "lreid.gallery.commands",
        "add": "lreid.gallery.commands",
        "build": "lreid.gallery.commands",
        "calibrate": "lreid.gallery.commands",
        "describe": "lreid.gallery.commands",
        "list_images": "lreid.gallery.image_list",
        "migrate": "lreid.gallery.versions",
        "query": "lreid.gallery.commands",
        "reindex": "lreid.gallery.versions",
        "remove": "lreid.gallery.commands",
        "roll_back": "lreid.gallery.versions",
        "verdict": "lreid.gallery.findings",
        "write_findings": "lreid.gallery.findings",
    },
)
