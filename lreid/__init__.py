"""lreid: lifelong person and vehicle re-identification."""

import lazy_loader

__version__ = "0.1.0"  # pyproject.toml reads it from here

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
