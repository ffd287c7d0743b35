"""Evaluation of retrieval: rankings and their metrics, protocols, re-ranking, open-set search, indexes.

This package needs numpy and torch, and faiss only for indexes.
"""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.retrieval.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
