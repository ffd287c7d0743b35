"""Evaluation of retrieval: rankings and their metrics, protocols, re-ranking, open-set search, indexes.

This package needs numpy and torch, and faiss only for indexes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
