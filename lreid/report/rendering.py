"""Render HTML from the templates of this package; whatever a run or a user named is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lreid.report.tables import number


class Cell(NamedTuple):
    """A number in a table: how it is written, and what it is sorted by; None stays last."""

    text: str
    value: float | None


class Row(NamedTuple):
    """A line of a table.

    Attributes:
        name: name that the page's filter compares; empty for lines that it does not hide.
        cells: words as they are, numbers as :class:`Cell`; the first is the head of the line, a word.
    """

    name: str
    cells: Sequence[str | Cell]


class Table(NamedTuple):
    """A table that is sorted by a click on a head.

    Attributes:
        title: for screen readers.
        heads: one a column.
        rows: see :class:`Row`.
        compared: its lines are what the filter counts.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    compared: bool = False

    def is_number(self, column: int) -> bool:
        """Whether a column holds nothing but numbers."""
        return all(isinstance(row.cells[column], Cell) for row in self.rows)


class Panel(NamedTuple):
    """A section of a page, which can be opened and closed.

    Attributes:
        title: heading.
        note: a line about what it shows, or empty.
        body: what it shows.
        wide: the images in it are wider than high, as those of vehicles.
        name: name that the page's filter compares; empty for sections that it does not hide.
    """

    title: str
    note: str
    body: Markup
    wide: bool = False
    name: str = ""


def panel(template: str, title: str, note: str, **values: Any) -> Panel:
    """A section whose body is made by a template, see :func:`render`."""
    return Panel(title, note, render(template, title=title, **values))


def anchored(panels: Iterable[Panel]) -> list[tuple[str, Panel]]:
    """Each section with a name that links can lead to."""
    named: dict[str, Panel] = {}
    for each in panels:
        name = anchor(each.title)
        while name in named:
            name += "-"
        named[name] = each
    return list(named.items())


def anchor(title: str) -> str:
    """The name of the first section with a title."""
    return re.sub(r"\W+", "-", title.lower()).strip("-") or "section"


def inside(title: str, name: str, panels: Sequence[Panel]) -> Panel:
    """Sections in one, each to be opened by itself."""
    return Panel(title, "", render("inside.html", panels=panels), name=name)


def once(page: str) -> str:
    """A page with an image that stands in several places only in the first; ``script.js`` puts it into the others."""
    first: dict[str, int] = {}

    def put(image: re.Match[str]) -> str:
        if image[0] in first:
            return f'data-same="{first[image[0]]}"'
        first[image[0]] = len(first)
        return image[0]

    return _IMAGE.sub(put, page)


def render(template: str, **values: Any) -> Markup:
    """A template of ``templates/`` with its values, as HTML that other templates take in as it is.

    Everything that is not :class:`Markup` is escaped.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def _static(name: str) -> Markup:
    """The content of a file in ``static/``, for pages that are to need no other file."""
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
