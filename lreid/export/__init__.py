"""Models as files of other programs: ONNX and torch.export, and what trackers load."""

from lreid.export.formats import export
from lreid.export.trackers import export_for

__all__ = ["export", "export_for"]
