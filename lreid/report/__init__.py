"""Make tables, plots and an HTML page from the files ``results.json`` of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
