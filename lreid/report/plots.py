"""Draw charts with matplotlib, as figures to save and as SVG for pages; matplotlib is imported by the first chart."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from lreid.report.rendering import render
from lreid.report.tables import Group, by_benchmark, grouped, labels, mean_and_std
from lreid.results import MEAN_KINDS, METRICS, Kind, Results, curve
from lreid.utils.extras import Extra
from lreid.utils.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 360, 220  # size of a line chart in a page, in SVG units; about its size in pixels on a phone
MATPLOTLIB, COLORS = Extra("matplotlib", "plots"), Extra("matplotlib.colors", "plots")
FIGURE, TICKER = Extra("matplotlib.figure", "plots"), Extra("matplotlib.ticker", "plots")
LINE_COLOURS = 10  # number of colours in matplotlib's cycle, C0 to C9, and in the style sheet
STYLES = ("-", "--", ":")
MARKERS = "oX^s"
FRAME, GRID = "#000000", "#b0b0b0"  # matplotlib's defaults
MOST_IN_AXES = 4  # maximum number of groups whose names fit into the axes

Coordinates = tuple[float, float]
Points = Iterable[tuple[float, Sequence[float | None]]]  # x, and the value of each run at x


class Line(NamedTuple):
    """A line of a chart.

    Attributes:
        name: name that is shown when the mouse is over a point, and that the filter of a page searches.
        points: ``(x, y)`` by ascending x, all finite.
        place: number of the line, which determines its colour, marker and dashes.
        band: half the height of the band at each point; empty for a line without a band.
        label: shorter name for legends.
        dash: 1 for the second line of a group, which is dashed; otherwise 0.
    """

    name: str
    points: tuple[Coordinates, ...]
    place: int = 0
    band: tuple[float, ...] = ()
    label: str = ""
    dash: int = 0

    @property
    def dashes(self) -> int:
        """Index into :data:`STYLES`: the first ten lines have the first style, and the next ten have the next style."""
        return (self.place // LINE_COLOURS + self.dash) % len(STYLES)

    @property
    def style(self) -> str:
        """CSS classes of the line's sample in the legend."""
        return f"line-{self.place % LINE_COLOURS} dash-{self.dashes}"


class Axis(NamedTuple):
    """The axes of a line chart; the y axis always contains 0.

    Attributes:
        label: label of the x axis.
        limits: left and right end of the x axis.
        ticks: positions and labels on the x axis.
        dots: whether to mark the points; a marked point shows its value when the mouse is over it.
        y_max: upper bound of the y axis.
        mark: x position of a thin vertical line.
    """

    label: str
    limits: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]
    dots: bool = True
    y_max: float = math.inf
    mark: float | None = None


def lines_of(groups: Sequence[Group], points: Callable[[Sequence[Results]], Points]) -> list[Line]:
    """Make a line per group through the means at each x, with a band of one standard deviation (n - 1).

    Args:
        groups: groups of one benchmark, whose order determines their colours.
        points: function that returns the points of a group's runs. Points whose value is None or not finite (a loss
            of a run that diverged), and groups without points, are left out.
    """
    lines = []
    for place, (group, label) in enumerate(zip(groups, labels(groups), strict=True)):
        spreads = [(x, *mean_and_std(values)) for x, values in points(group.runs)]
        measured = [(x, mean, std or 0.0) for x, mean, std in spreads if mean is not None and math.isfinite(mean)]
        if measured:
            means, band = tuple((x, mean) for x, mean, _ in measured), tuple(std for *_, std in measured)
            lines.append(Line(group.name, means, place, band, label))
    return lines


def averages(runs: Sequence[Results], metric: str, kind: Kind) -> Points:
    """Average a metric over the seen or the unseen test sets, after each task."""
    return enumerate(zip(*(curve(run, metric, kind) for run in runs), strict=True), start=1)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically."""
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=120))


def learning_curve(runs: Results | Sequence[Results]) -> Figure:
    """Draw mAP and Rank-1 after every task, averaged over seen and over unseen test sets; no display is needed.

    A line is a group of :func:`lreid.report.tables.grouped`: the mean of its runs, with a band of one standard
    deviation (n - 1).

    Args:
        runs: content of one or several ``results.json``.
    """
    runs = [runs] if isinstance(runs, dict) else list(runs)
    groups = grouped(runs)
    crowded = len(groups) > MOST_IN_AXES
    figure = new_figure(12 if crowded else 10, 4, layout="constrained")
    metrics = [metric for metric in METRICS if metric.main]
    for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        for dash, kind in enumerate(MEAN_KINDS):
            lines = lines_by_benchmark(groups, partial(averages, metric=metric.name, kind=kind))
            draw_lines(axes, [line._replace(label=f"{line.label}, {kind}", dash=dash) for line in lines])
        axes.set(title=f"{metric.label} (%)", xlabel="tasks learned", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        if axes.lines and not crowded:
            axes.legend()
    if crowded:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    conventions = ", ".join(sorted({run["ap"] for run in runs}))
    figure.suptitle(f"{', '.join(dict.fromkeys(group.benchmark for group in groups))} ({conventions} AP)")
    return figure


def lines_by_benchmark(groups: Sequence[Group], points: Callable[[Sequence[Results]], Points]) -> list[Line]:
    """Make the lines of all benchmarks for one chart; with several benchmarks, labels contain their names."""
    return [
        line._replace(place=groups.index(members[0]) + line.place, label=f"{line.label}{where}")
        for members, where in by_benchmark(groups)
        for line in lines_of(members, points)
    ]


def line_chart(lines: tuple[Line, ...], title: str, axis: Axis) -> Markup:
    """Draw lines in a chart, and return it as an ``<svg>`` element."""
    values = [(y, half) for line in lines for (_, y), half in zip(line.points, line.band or repeat(0.0), strict=False)]
    ends = [y + side * half for y, half in values for side in (-1, 1)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    levels = np.array(TICKER.MaxNLocator(5, steps=(1, 2, 5, 10)).tick_values(low, high if high > low else 1.0))
    levels = levels[levels <= max(axis.y_max, levels[1])]
    names = [f"{level:.4g}" for level in levels]

    figure = new_figure(WIDTH / 72, HEIGHT / 72)
    edge = 40 + 8 * max(0, max(map(len, names)) - 5)  # pixels on the left, enough for the longest number
    axes = figure.add_axes((edge / WIDTH, 36 / HEIGHT, (WIDTH - 12 - edge) / WIDTH, (HEIGHT - 46) / HEIGHT))
    left, right = axis.limits
    axes.set(xlim=axis.limits if left < right else (left - 1, right + 1), ylim=(levels[0], levels[-1]))
    axes.set_xticks([x for x, _ in axis.ticks], [text for _, text in axis.ticks])
    axes.set_yticks(levels, names)
    axes.set_xlabel(axis.label, fontsize=12)
    axes.tick_params(labelsize=12, color=GRID)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.spines[:].set_visible(False)
    axes.grid(axis="y", clip_on=False)
    if low < 0:
        axes.axhline(0, color=FRAME, linewidth=0.8)
    if axis.mark is not None:
        axes.axvline(axis.mark, color=FRAME, linewidth=0.8, linestyle=":")
    draw_lines(axes, lines, dots=axis.dots)
    hover = {
        f"line-{place}": [f"{line.label or line.name}: {y:.2f}" for _, y in line.points]
        for place, line in enumerate(lines)
    }
    named = {f"{part}-{place}": line.name for place, line in enumerate(lines) for part in ("line", "band")}
    return svg_of(figure, title, hover, named)


def line_keys(lines: Sequence[Line]) -> Markup:
    """Make the legend of lines, as HTML."""
    return render("legend.html", lines=lines, dots=())


def draw_lines(axes: Axes, lines: Sequence[Line], *, dots: bool = True) -> None:
    """Draw lines and bands; in an SVG, the n-th line is the element ``line-n``, and its band is ``band-n``."""
    for number, line in enumerate(lines):
        x, y = np.array(line.points, dtype=float).reshape(-1, 2).T
        colour = f"C{line.place % LINE_COLOURS}"
        marker = MARKERS[line.place // LINE_COLOURS % len(MARKERS)] if dots or len(x) == 1 else ""
        style: dict[str, Any] = {"marker": marker, "markersize": 5, "color": colour, "clip_on": False}
        axes.plot(x, y, STYLES[line.dashes], label=line.label or line.name, gid=f"line-{number}", **style)
        if any(line.band):
            band = np.array(line.band)
            axes.fill_between(x, y - band, y + band, color=colour, alpha=0.15, linewidth=0, gid=f"band-{number}")


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = None) -> Figure:
    """Create a matplotlib figure without pyplot; width and height are in inches."""
    drawn: Figure = FIGURE.Figure(figsize=(width, height), layout=layout)
    return drawn


def svg_of(
    figure: Figure, title: str, hover: Mapping[str, Sequence[str]], names: Mapping[str, str] | None = None
) -> Markup:
    """Return a figure as an ``<svg>`` element; ``hover`` has texts and ``names`` the names of its elements."""
    # The colours for light and dark mode come from the page's style sheet.
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    file = io.StringIO()
    with MATPLOTLIB.rc_context({"svg.fonttype": "none", "svg.hashsalt": repr((title, hover))}):
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = re.sub(r"font-family: [^;\"]*;?", "", file.getvalue())
    colours = {COLORS.to_hex(f"C{place}"): f"var(--line-{place})" for place in range(LINE_COLOURS)}
    for colour, variable in (colours | {FRAME: "var(--soft)", GRID: "var(--rule)"}).items():
        text = text.replace(colour, variable)
    root = ElementTree.fromstring(text)
    for parent in root.findall(".//{*}style/.."):  # remove the style, because it would apply to the whole page
        root.remove(parent)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text or "").strip(), ""
        element.attrib = {key.rpartition("}")[2]: " ".join(value.split()) for key, value in element.items()}
        if element.tag == "g":
            own = element.attrib.pop("id", "")
            if name := (names or {}).get(own):
                element.set("data-name", name)
            for marker, label in zip(element.iterfind(".//{*}use"), hover.get(own, ()), strict=False):
                ElementTree.SubElement(marker, "title").text = label
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": title}
    return Markup(ElementTree.tostring(root, encoding="unicode"))
