"""Find the place of a gallery by its address: a file of faiss, or Milvus."""

from __future__ import annotations

from pathlib import Path

from lreid.gallery.faiss.faiss_store import FilePlace
from lreid.gallery.store import Place

SCHEME = "milvus:"


def place_of(where: str | Path) -> Place:
    """The place that an address names.

    Args:
        where: a file; ``milvus:FILE.db``, a database of Milvus Lite in this process; or ``milvus:http://host:port``, a
            Milvus server or cluster; the last two with ``/NAME`` behind them if they hold several galleries.

    Raises:
        InputError: an address of Milvus that is none.
    """
    text = str(where)
    if not text.startswith(SCHEME):
        return FilePlace.named(text)
    from lreid.gallery.milvus.place import MilvusPlace  # so that files need nothing of it

    return MilvusPlace.parse(text)
