"""Loss functions without state: each takes tensors and returns a scalar. This package needs only torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
