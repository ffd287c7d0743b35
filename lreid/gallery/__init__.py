"""Galleries: store features and labels of images, search them, change them, and check a new model against them."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.gallery.commands import add, build, calibrate, info, query, remove
    from lreid.gallery.filters import Filter
    from lreid.gallery.findings import verdict, write_findings
    from lreid.gallery.gallery import Gallery, Matches
    from lreid.gallery.images import list_images
    from lreid.gallery.named_gallery import NamedGallery
    from lreid.gallery.versions import migrate, reindex, roll_back

__all__ = ["Filter", "Gallery", "Matches", "NamedGallery"]
__all__ += ["add", "build", "calibrate", "info", "list_images", "query", "remove"]
__all__ += ["migrate", "reindex", "roll_back", "verdict", "write_findings"]

MODULES = {
    "commands": ("add", "build", "calibrate", "info", "query", "remove"),
    "filters": ("Filter",),
    "findings": ("verdict", "write_findings"),
    "gallery": ("Gallery", "Matches"),
    "images": ("list_images",),
    "named_gallery": ("NamedGallery",),
    "versions": ("migrate", "reindex", "roll_back"),
}
__getattr__, __dir__ = public_names(
    __name__, {name: f"{__name__}.{module}" for module, names in MODULES.items() for name in names}
)
