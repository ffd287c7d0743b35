"""Curves of runs that are drawn only where they look otherwise: drawing would take a third of a tiny run."""

from __future__ import annotations

import hashlib
import io
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib.figure import Figure

from lreid.report import learning_curve


class Curve:
    """The figure of some results; of those of one form, all processes of a test save the picture drawn first.

    Args:
        folder: of the pictures.
        results: as for :func:`lreid.report.learning_curve`, which makes the figure.
    """

    def __init__(self, folder: Path, results: Any) -> None:
        self.folder, self.figure = folder, learning_curve(results)

    def savefig(self, file: BinaryIO, **options: Any) -> None:
        drawn = self.folder / hashlib.sha256(repr((_form(self.figure), options)).encode()).hexdigest()
        if not drawn.exists():
            picture = io.BytesIO()
            self.figure.savefig(picture, **options)
            whole = drawn.with_suffix(f".{os.getpid()}")
            whole.write_bytes(picture.getvalue())
            whole.replace(drawn)
        file.write(drawn.read_bytes())


def _form(figure: Figure) -> Any:
    """Names without letters and digits, and of each line its style and which of its points are there."""
    lines = [
        (re.sub(r"\w", "", str(line.get_label())), line.get_linestyle(), np.isfinite(line.get_ydata()).tolist())
        for axes in figure.axes
        for line in axes.lines
    ]
    return re.sub(r"\w", "", figure.get_suptitle()), lines
