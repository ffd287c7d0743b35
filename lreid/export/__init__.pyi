from .formats import export as export
from .trackers import export_for as export_for
