"""lreid: lifelong person and vehicle re-identification."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.gallery import Gallery
    from lreid.loading import load_model
    from lreid.models.crops import CropEmbedder
    from lreid.models.fingerprint import fingerprint
    from lreid.retrieval import evaluate

__version__ = "0.1.0"  # setup.py reads it from here
__all__ = ["CropEmbedder", "Gallery", "evaluate", "fingerprint", "load_model"]

__getattr__, __dir__ = public_names(
    __name__,
    {
        "CropEmbedder": "lreid.models.crops",
        "Gallery": "lreid.gallery",
        "evaluate": "lreid.retrieval.ranking",
        "fingerprint": "lreid.models.fingerprint",
        "load_model": "lreid.loading",
    },
)
