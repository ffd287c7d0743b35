"""Export of models to other programs: as ONNX, by torch.export, and in the formats of trackers."""

from lreid.export.formats import export
from lreid.export.trackers import export_for

__all__ = ["export", "export_for"]
