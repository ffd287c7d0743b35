"""Scatter plots of features as SVG, with legends of their colours and shapes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from lreid.report.plots import GRID, LINE_COLOURS, new_figure, svg_of
from lreid.report.rendering import render

SIZE, MARGIN = 360, 12  # size of a scatter plot
# Markers of the dots of a scatter plot, with their signs in the legend.
SHAPES = {"o": "●", "s": "■", "^": "▲", "D": "◆", "P": "✚", "v": "▼", "X": "✖", "p": "⬟"}


class Dot(NamedTuple):
    """A point of a scatter plot: its position, the numbers of its colour and shape, and its text on hover."""

    x: float
    y: float
    colour: int
    shape: int
    label: str


def scatter(dots: Sequence[Dot], box: tuple[float, float, float, float], title: str) -> Markup:
    """Draw dots in a square with the same scale on both axes, and return it as an ``<svg>`` element."""
    left, bottom, right, top = box
    half = max(right - left, top - bottom, 1e-12) / 2 * SIZE / (SIZE - 2 * MARGIN)
    middle_x, middle_y = (left + right) / 2, (bottom + top) / 2
    figure = new_figure(SIZE / 72, SIZE / 72)
    axes = figure.add_axes((0.003, 0.003, 0.994, 0.994))
    axes.set(xlim=(middle_x - half, middle_x + half), ylim=(middle_y - half, middle_y + half), xticks=[], yticks=[])
    axes.spines[:].set_color(GRID)
    styles: dict[tuple[int, int], list[Dot]] = {}
    for dot in dots:
        styles.setdefault((dot.colour % LINE_COLOURS, dot.shape % len(SHAPES)), []).append(dot)
    for place, ((colour, shape), alike) in enumerate(styles.items()):
        marker = list(SHAPES)[shape]
        x, y = [dot.x for dot in alike], [dot.y for dot in alike]
        options: dict[str, Any] = {"markersize": 8, "markeredgewidth": 0, "alpha": 0.8, "clip_on": False}
        axes.plot(x, y, marker, color=f"C{colour}", gid=f"dots-{place}", **options)
    hover = {f"dots-{place}": [dot.label for dot in alike] for place, alike in enumerate(styles.values())}
    return svg_of(figure, title, hover)


def common_box(*points: np.ndarray) -> tuple[float, float, float, float]:
    """Return the smallest box around several sets of points (n, 2): left, bottom, right, top."""
    together = np.concatenate(points)
    (left, bottom), (right, top) = together.min(0), together.max(0)
    return float(left), float(bottom), float(right), float(top)


def dot_keys(names: Sequence[str], *, shapes: bool) -> Markup:
    """Make the legend of the shapes or the colours of dots, as HTML."""
    signs = list(SHAPES.values())
    dots = [
        (name, "" if shapes else f" line-{place % LINE_COLOURS}", signs[place % len(signs) if shapes else 0])
        for place, name in enumerate(names)
    ]
    return render("legend.html", lines=(), dots=dots)
