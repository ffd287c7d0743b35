"""Create, check, read and summarise ``results.json``: facts about a run, and its metrics after every task."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
