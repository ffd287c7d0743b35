"""Export of models for other programs: ONNX, torch.export, and the formats of trackers."""

from lreid.export.formats import export
from lreid.export.trackers import export_for

__all__ = ["export", "export_for"]
