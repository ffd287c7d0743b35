"""Galleries: store features and labels of images, search them, change them, and check a new model against them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
