"""Render HTML from the templates of this package, and escape the values from runs and users."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lreid.report.tables import number


class Cell(NamedTuple):
    """A number in a table: its text, and its value for sorting (None comes last)."""

    text: str
    value: float | None


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        name: name that the page's filter compares; empty for rows that are always shown.
        cells: texts, or numbers as :class:`Cell`; the first cell is the heading of the row.
    """

    name: str
    cells: Sequence[str | Cell]


class Table(NamedTuple):
    """A table that the reader can sort by clicking a heading.

    Attributes:
        title: title for screen readers.
        compared: whether the page's filter counts the rows.
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
        note: a line about the content, or empty.
        body: content of the section.
        wide: whether images are wider than high, as for vehicles.
        name: name that the page's filter compares; empty for sections that are always shown.
    """

    title: str
    note: str
    body: Markup
    wide: bool = False
    name: str = ""


def panel(template: str, title: str, note: str, **values: Any) -> Panel:
    """Make a section whose body is a rendered template (see :func:`render`)."""
    return Panel(title, note, render(template, title=title, **values))


def anchored(panels: Iterable[Panel]) -> list[tuple[str, Panel]]:
    """Give each section a unique name, to which links can point."""
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
    """Make a section that contains several sections, each of which the reader can open."""
    return Panel(title, "", render("inside.html", panels=panels), name=name)


def once(page: str) -> str:
    """If a page shows an image several times, store it once; ``script.js`` copies it to the other places."""
    first: dict[str, int] = {}

    def put(image: re.Match[str]) -> str:
        if image[0] in first:
            return f'data-same="{first[image[0]]}"'
        first[image[0]] = len(first)
        return image[0]

    return _IMAGE.sub(put, page)


def render(template: str, **values: Any) -> Markup:
    """Fill a template in ``templates/`` with values, and return HTML that other templates do not escape again.

    The template engine escapes all values except :class:`Markup`.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def _static(name: str) -> Markup:
    """Return the content of a file in ``static/``, to include it in a page."""
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
