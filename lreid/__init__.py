"""lreid: lifelong person and vehicle re-identification."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lreid.gallery import Gallery
    from lreid.loading import load_model
    from lreid.models.crops import CropEmbedder
    from lreid.models.fingerprint import fingerprint
    from lreid.retrieval import evaluate

__version__ = "0.1.0"  # setup.py reads it here
__all__ = ["CropEmbedder", "Gallery", "evaluate", "fingerprint", "load_model"]

_HOMES = {
    "CropEmbedder": "lreid.models.crops",
    "Gallery": "lreid.gallery",
    "evaluate": "lreid.retrieval",
    "fingerprint": "lreid.models.fingerprint",
    "load_model": "lreid.loading",
}


def __getattr__(name: str) -> Any:
    # On demand, so that `from lreid.losses import …` does not load everything else.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'lreid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
