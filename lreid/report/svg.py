"""Line charts and scatter plots as SVG. Colours come from classes: the style sheet has them for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from lreid.report.rendering import render

WIDTH, HEIGHT = 360, 220  # of a line chart, user units; about the pixels on a phone
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 10, 36  # margins around the plot, with room for five digits on the left
DIGIT = 8  # more of it for each further one
SIZE, MARGIN = 360, 12  # of a scatter plot
COLOURS = 10  # of the style sheet

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

Point = tuple[float, float]


class Line(NamedTuple):
    """A line of a chart.

    Attributes:
        name: of the line, shown when a dot is pointed at; what the filter of the page looks at.
        points: ``(x, y)`` by ascending x; those that are not finite are left out.
        style: classes of :func:`line_style`.
        band: half the height of the band around each point; empty for none.
        label: what the line is called where that is shorter than the name.
    """

    name: str
    points: Sequence[Point]
    style: str
    band: Sequence[float] = ()
    label: str = ""


def line_style(place: int) -> str:
    """Classes of the ``place``-th line: ten colours, then the same ten dashed, then dotted."""
    dash = place // COLOURS % 3
    return f"line-{place % COLOURS}" + (f" dash-{dash}" if dash else "")


def line_chart(
    lines: Sequence[Line],
    *,
    x_range: tuple[float, float],
    x_label: str,
    x_ticks: Sequence[tuple[float, str]],
    title: str,
    dots: bool = False,
    y_max: float = math.inf,
    mark: float | None = None,
) -> Markup:
    """A chart of lines over a y axis that holds 0.

    Args:
        lines: see :class:`Line`.
        x_range: left and right end of the x axis.
        x_label: below the x axis.
        x_ticks: positions and labels below the x axis.
        title: for screen readers.
        dots: mark the points; each shows its value when pointed at.
        y_max: the y axis ends here at the latest.
        mark: where a thin upright line stands.

    Returns:
        An ``<svg>`` element.
    """
    values = [
        y + reach
        for line in lines
        for (_, y), half in zip(line.points, line.band or [0.0] * len(line.points), strict=True)
        for reach in (-half, half)
        if math.isfinite(y)
    ]
    bottom, top = min([0.0, *values]), max([0.0, *values])
    step = _nice_step(top - bottom)
    low = math.floor(bottom / step) * step
    high = max(min(y_max, math.ceil(top / step) * step), low + step)
    left, right = x_range
    if left == right:
        left, right = left - 1, right + 1

    heights = [(y, _tick(y, step)) for y in (low + place * step for place in range(round((high - low) / step) + 1))]
    edge = LEFT + DIGIT * max(0, max(len(label) for _, label in heights) - 5)

    def px(x: float) -> float:
        return edge + (x - left) / (right - left) * (WIDTH - edge - RIGHT)

    def py(y: float) -> float:
        inside = min(max(y, low), high)  # a band may reach beyond y_max
        return HEIGHT - BOTTOM - (inside - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for y, label in heights:
        zero = " zero" if low < 0 and abs(y) < step / 2 else ""
        parts.append(f'<path class="grid{zero}" d="M{edge} {py(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{edge - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{label}</text>')
    if mark is not None:
        parts.append(f'<path class="mark" d="M{px(mark):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
    for x, label in x_ticks:
        parts.append(f'<path class="grid" d="M{px(x):.1f} {HEIGHT - BOTTOM}v4"/>')
        parts.append(f'<text x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(label)}</text>')
    middle = (edge + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    for line in lines:
        parts.append(f'<g class="{line.style}" data-name="{escape(line.name)}">')
        if any(line.band):
            around = list(zip(line.points, line.band, strict=True))
            rim = [(x, y + half) for (x, y), half in around]
            rim += [(x, y - half) for (x, y), half in reversed(around)]
            outline = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in rim if math.isfinite(y))
            parts.append(f'<path class="band" d="M{outline}Z"/>')
        known = [(x, y) for x, y in line.points if math.isfinite(y)]
        parts.append(f'<polyline points="{" ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in known)}"/>')
        if dots or len(known) == 1:
            parts.extend(
                f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="2.5">'
                f"<title>{escape(line.label or line.name)}: {y:.2f}</title></circle>"
                for x, y in known
            )
        parts.append("</g>")
    return Markup("".join([*parts, "</svg>"]))


def line_keys(lines: Sequence[Line]) -> Markup:
    """The legend of lines, HTML."""
    return render("legend.html", lines=lines, dots=())


def spread_ticks(count: int, most: int = 10) -> list[tuple[float, str]]:
    """Ticks for tasks ``1 .. count``, at most about ``most`` of them."""
    step = math.ceil(count / most)
    return [(task, str(task)) for task in range(1, count + 1) if (task - 1) % step == 0]


class Dot(NamedTuple):
    """A point: its position, its colour and shape (numbers, taken again from the first on), and what it stands for."""

    x: float
    y: float
    colour: int
    shape: int
    label: str


def scatter(dots: Sequence[Dot], box: tuple[float, float, float, float], title: str) -> Markup:
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
            f'<path class="dot line-{dot.colour % COLOURS}" transform="translate({x:.1f} {y:.1f})" '
            f'd="{SHAPES[dot.shape % len(SHAPES)]}"><title>{escape(dot.label)}</title></path>'
        )
    return Markup("".join([*parts, "</svg>"]))


def common_box(*points: np.ndarray) -> tuple[float, float, float, float]:
    """The smallest box around several sets of points (n, 2): left, bottom, right, top."""
    together = np.concatenate(points)
    (left, bottom), (right, top) = together.min(0), together.max(0)
    return float(left), float(bottom), float(right), float(top)


def dot_keys(names: Sequence[str], *, shapes: bool) -> Markup:
    """The legend of the shapes of dots, or of their colours, HTML."""
    dots = [
        (name, "" if shapes else f" line-{place % COLOURS}", SHAPES[place % len(SHAPES) if shapes else 0])
        for place, name in enumerate(names)
    ]
    return render("legend.html", lines=(), dots=dots)


def _tick(value: float, step: float) -> str:
    """A value of the y axis, without the dust that adding steps leaves behind."""
    return f"{0.0 if abs(value) < step / 2 else value:.4g}"


def _nice_step(span: float) -> float:
    """1, 2 or 5 times a power of ten that cuts the span into about five."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span / 5 * (1 - 1e-9))
