"""Bars for work on many images: on terminals alone, and only where it takes more than a moment."""

from __future__ import annotations

import os

from tqdm import tqdm

MOMENT = 2.0  # seconds


class Bar(tqdm):
    """Without the thread of others that refreshes bars: bars here are updated often enough."""

    monitor_interval = 0


def images_done(total: int | None, what: str) -> Bar:
    """A bar that counts images by ``update``, and gone once it is closed; of several processes the first has one.

    Args:
        total: images; None where nobody knows how many.
        what: is done to them, such as ``reading``.
    """
    silent = True if os.environ.get("RANK", "0") != "0" else None  # None: unless it is a terminal
    return Bar(total=total, desc=what, unit="image", delay=MOMENT, leave=False, disable=silent)
