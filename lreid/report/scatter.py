"""Points in a plane as SVG: colours for identities, shapes for cameras."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

SIZE, MARGIN = 360, 12  # user units

# Around the origin, about as large to the eye as a circle of radius 4.
SHAPES = (
    "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",  # circle
    "M-3.6-3.6H3.6V3.6H-3.6Z",  # square
    "M0-5L4.6 3.4H-4.6Z",  # triangle
    "M0-5L5 0L0 5L-5 0Z",  # diamond
    "M-1.5-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z",  # plus
    "M0 5L-4.6-3.4H4.6Z",  # triangle on its head
    "M-5-3.2L-3.2-5L0-1.8L3.2-5L5-3.2L1.8 0L5 3.2L3.2 5L0 1.8L-3.2 5L-5 3.2L-1.8 0Z",  # cross
    "M-5-2H5V2H-5Z",  # bar
)


class Dot(NamedTuple):
    """A point: its place, its colour and its shape (numbers, taken again from the first on), and what it stands for."""

    x: float
    y: float
    colour: int
    shape: int
    label: str


def scatter(dots: Sequence[Dot], box: tuple[float, float, float, float], title: str) -> str:
    """Dots in a square whose axes have one scale.

    Args:
        dots: see :class:`Dot`.
        box: left, bottom, right and top end of what is shown, as of :func:`common_box`.
        title: for screen readers.

    Returns:
        An ``<svg>`` element.
    """
    left, bottom, right, top = box
    scale = (SIZE - 2 * MARGIN) / max(right - left, top - bottom, 1e-12)
    middle_x, middle_y = (left + right) / 2, (bottom + top) / 2
    parts = [
        f'<svg viewBox="0 0 {SIZE} {SIZE}" role="img" aria-label="{escape(title)}">',
        f'<path class="grid" d="M1 1H{SIZE - 1}V{SIZE - 1}H1Z"/>',
    ]
    for dot in dots:
        x, y = SIZE / 2 + scale * (dot.x - middle_x), SIZE / 2 - scale * (dot.y - middle_y)
        parts.append(
            f'<path class="dot line-{dot.colour % 10}" transform="translate({x:.1f} {y:.1f})" '
            f'd="{SHAPES[dot.shape % len(SHAPES)]}"><title>{escape(dot.label)}</title></path>'
        )
    return "".join([*parts, "</svg>"])


def common_box(*points: np.ndarray) -> tuple[float, float, float, float]:
    """The smallest box around several sets of points (n, 2): left, bottom, right, top."""
    together = np.concatenate(points)
    (left, bottom), (right, top) = together.min(0), together.max(0)
    return float(left), float(bottom), float(right), float(top)


def dot_keys(names: Sequence[str], *, shapes: bool) -> str:
    """What each shape is, or each colour, HTML."""
    return " ".join(
        f'<span class="shape{"" if shapes else f" line-{place % 10}"}"><svg viewBox="-6 -6 12 12" aria-hidden="true">'
        f'<path class="dot" d="{SHAPES[place % len(SHAPES) if shapes else 0]}"/></svg>{escape(name)}</span>'
        for place, name in enumerate(names)
    )
