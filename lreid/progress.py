"""Progress bars for many images: only on terminals, and only if the work takes more than a moment."""

from __future__ import annotations

import os

from tqdm import tqdm

MOMENT = 2.0  # seconds


class Bar(tqdm):
    """tqdm without its monitoring thread, because bars here are updated often enough."""

    monitor_interval = 0


def images_done(total: int | None, what: str) -> Bar:
    """A bar that counts images by ``update`` and disappears when it is closed; only the first process shows it.

    Args:
        total: number of images; None if unknown.
        what: name of the work, such as ``reading``.
    """
    silent = True if os.environ.get("RANK", "0") != "0" else None  # None: disabled unless it is a terminal
    return Bar(total=total, desc=what, unit="image", delay=MOMENT, leave=False, disable=silent)
