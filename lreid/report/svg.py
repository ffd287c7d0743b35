"""Line charts as SVG text. Colours are classes: the style sheet of the page has them for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 420, 230  # user units; about the pixels on a phone
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 10, 34  # margins around the plot

Point = tuple[float, float]


def line_chart(
    lines: dict[str, Sequence[Point]],
    *,
    x_range: tuple[float, float],
    x_label: str,
    x_ticks: Sequence[tuple[float, str]],
    title: str,
    dots: bool = False,
    y_max: float = math.inf,
) -> str:
    """A chart of one line or more over a y axis that begins at 0 or below.

    Args:
        lines: points ``(x, y)`` by name; the n-th line has the class ``line-n``.
        x_range: left and right end of the x axis.
        x_label: below the x axis.
        x_ticks: places and labels below the x axis.
        title: for screen readers.
        dots: mark the points; each shows its value when pointed at.
        y_max: the y axis ends here at the latest.

    Returns:
        An ``<svg>`` element.
    """
    values = [y for points in lines.values() for _, y in points if math.isfinite(y)]
    step = _nice_step(max([0.0, *values]) - min([0.0, *values]))
    low = math.floor(min([0.0, *values]) / step) * step
    high = min(y_max, math.ceil(max([step, *values]) / step) * step)
    left, right = x_range
    if left == right:
        left, right = left - 1, right + 1

    def px(x: float) -> float:
        return LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for place in range(round((high - low) / step) + 1):
        y = low + place * step
        parts.append(f'<path class="grid" d="M{LEFT} {py(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for x, label in x_ticks:
        bottom = HEIGHT - BOTTOM
        parts.append(f'<path class="grid" d="M{px(x):.1f} {bottom}v4"/>')
        parts.append(f'<text x="{px(x):.1f}" y="{bottom + 15}" text-anchor="middle">{escape(label)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    for place, (name, points) in enumerate(lines.items()):
        known = [(x, y) for x, y in points if math.isfinite(y)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in known)
        parts.append(f'<polyline class="line-{place}" points="{path}"/>')
        if dots or len(known) == 1:
            parts.extend(
                f'<circle class="line-{place}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3">'
                f"<title>{escape(name)}: {y:.2f}</title></circle>"
                for x, y in known
            )
    return "".join([*parts, "</svg>"])


def spread_ticks(count: int, most: int = 10) -> list[tuple[float, str]]:
    """Ticks for tasks ``1 .. count``, at most about ``most`` of them."""
    step = math.ceil(count / most)
    return [(task, str(task)) for task in range(1, count + 1) if (task - 1) % step == 0]


def _nice_step(span: float) -> float:
    """1, 2 or 5 times a power of ten that cuts the span into about five."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span / 5 * (1 - 1e-9))
