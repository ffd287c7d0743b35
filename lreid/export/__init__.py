"""Export of models to other programs: as ONNX, by torch.export, and in the formats of trackers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
