"""lreid: lifelong person and vehicle re-identification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lreid.training.run import load_model

__all__ = ["load_model"]


def __getattr__(name: str) -> Any:
    # On demand, so that `from lreid.losses import …` does not load everything else.
    if name == "load_model":
        from lreid.training.run import load_model

        return load_model
    raise AttributeError(f"module 'lreid' has no attribute {name!r}")
