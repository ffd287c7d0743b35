"""Render HTML from the templates of this package; values from runs and users are escaped."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lreid.report.tables import number


class Cell(NamedTuple):
    """A number in a table: its text, and its value for sorting, which puts None last."""

    text: str
    value: float | None


class Row(NamedTuple):
    """A line of a table.

    Attributes:
        name: name that the filter of the page compares; empty for rows that the filter never hides.
        cells: texts, and numbers as :class:`Cell`; the first cell is the heading of the row.
    """

    name: str
    cells: Sequence[str | Cell]


class Table(NamedTuple):
    """A table that the reader can sort by a click on a heading.

    Attributes:
        title: title for screen readers.
        heads: headings of the columns.
        rows: rows of the table.
        compared: whether the filter of the page counts the rows.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    compared: bool = False

    def is_number(self, column: int) -> bool:
        """Whether a column contains only numbers."""
        return all(isinstance(row.cells[column], Cell) for row in self.rows)


class Panel(NamedTuple):
    """A section of a page, which the reader can open and close.

    Attributes:
        title: heading.
        note: a line about the content, or empty.
        body: content of the section.
        wide: whether images are wider than high, as for vehicles.
        name: name that the filter of the page compares; empty for sections that the filter never hides.
    """

    title: str
    note: str
    body: Markup
    wide: bool = False
    name: str = ""


def panel(template: str, title: str, note: str, **values: Any) -> Panel:
    """Make a section with a body from a template (see :func:`render`)."""
    return Panel(title, note, render(template, title=title, **values))


def anchored(panels: Iterable[Panel]) -> list[tuple[str, Panel]]:
    """Give each section a unique name, which is the target of links."""
    named: dict[str, Panel] = {}
    for each in panels:
        name = anchor(each.title)
        while name in named:
            name += "-"
        named[name] = each
    return list(named.items())


def anchor(title: str) -> str:
    """Return the name that :func:`anchored` gives to the first section with this title."""
    return re.sub(r"\W+", "-", title.lower()).strip("-") or "section"


def inside(title: str, name: str, panels: Sequence[Panel]) -> Panel:
    """Make one section that contains several sections; the reader can open each section separately."""
    return Panel(title, "", render("inside.html", panels=panels), name=name)


def once(page: str) -> str:
    """Store an image that a page shows repeatedly only once; ``script.js`` copies the image to the other places."""
    first: dict[str, int] = {}

    def put(image: re.Match[str]) -> str:
        if image[0] in first:
            return f'data-same="{first[image[0]]}"'
        first[image[0]] = len(first)
        return image[0]

    return _IMAGE.sub(put, page)


def render(template: str, **values: Any) -> Markup:
    """Fill a template in ``templates/`` with values; return HTML that other templates do not escape again.

    The template engine escapes all values that are not :class:`Markup`.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def _static(name: str) -> Markup:
    """Return the content of a file in ``static/``, to be included in a page."""
    return Markup((Path(__file__).parent / "static" / name).read_text(encoding="utf-8"))


_IMAGE = re.compile('src="data:image/[^"]*"')
_ENVIRONMENT = Environment(
    loader=PackageLoader("lreid.report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.globals["static"] = _static
_ENVIRONMENT.filters["number"] = number
