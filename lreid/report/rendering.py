"""Parts of HTML pages: tables, sections, and ranked images; templates escape the values of runs and users."""

import base64
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image, ImageFilter

from lreid.errors import counted
from lreid.report.tables import number
from lreid.utils.files import write_text

FOLDER = Path(__file__).parent
THUMBNAIL_HEIGHT = 144  # maximum size of a thumbnail, pixels

Verdict = Literal["right", "wrong", "distractor", "known", "below", ""]

# Sign and meaning of each verdict; readers can distinguish signs and frames without colour.
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "right": ("✓", "the same identity"),
    "wrong": ("✗", "another identity"),
    "distractor": ("○", "a distractor: no query has its identity"),
    "known": ("✓", "reaches the threshold"),
    "below": ("?", "below the threshold"),
}


class Cell(NamedTuple):
    """A number in a table: its text, and its value for sorting (None comes last)."""

    text: str
    value: float | None


class TableRow(NamedTuple):
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
    rows: Sequence[TableRow]
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
    return Markup((FOLDER / "static" / name).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Tile:
    """An image and the text below it.

    Attributes:
        jpeg: image from :func:`thumbnail`, or None if the file is missing.
        name: source of the image, which is shown on hover.
        labels: identity and camera of the image.
    """

    jpeg: bytes | None
    name: str
    labels: tuple[str, ...]

    @property
    def source(self) -> str:
        """The JPEG image as a data URI."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg or b'').decode()}"


@dataclass(frozen=True)
class Match:
    """One image of a ranking, with its rank.

    Attributes:
        rank: the rank, from 1.
        score: score as text.
        verdict: key of :data:`VERDICTS`, or empty.
        tile: the image at this rank.
    """

    rank: int
    score: str
    verdict: Verdict
    tile: Tile


@dataclass(frozen=True)
class RankedQuery:
    """A query with its ranking, best match first.

    Attributes:
        tile: the query image.
        headline: one line about the result of the query.
        matches: matches in the order of their ranks; ranks may be missing.
    """

    tile: Tile
    headline: str
    matches: Sequence[Match]


def write_ranked(
    path: Path, title: str, intro: Sequence[str], sections: Sequence[Panel], *, links: Sequence[tuple[str, str]] = ()
) -> None:
    """Write a page of rankings, atomically.

    Args:
        path: path of the page.
        intro: lines below the heading.
        sections: sections of the page, see :func:`ranked_panel`.
        links: text and address of each link.
    """
    write_text(path, render("ranked.html", title=title, intro=intro, links=links, panels=anchored(sections)))


def ranked_panel(title: str, note: str, rankings: Sequence[RankedQuery], wide: bool = False) -> Panel:
    """Make a section of rankings with a legend of their verdicts; ``wide`` as in :class:`Panel`."""
    verdicts = {match.verdict for each in rankings for match in each.matches}
    used = [verdict for verdict in VERDICTS if verdict in verdicts]
    return Panel(title, note, render("rankings.html", verdicts=VERDICTS, used=used, rankings=rankings), wide)


def thumbnail(image: np.ndarray, *, blur: bool = False) -> bytes:
    """Encode an image as JPEG of at most ``THUMBNAIL_HEIGHT`` pixels in height; smaller images are not enlarged.

    Args:
        image: (H, W, 3) uint8, RGB.
        blur: whether to blur the image until faces cannot be recognised, for pages that others will see.
    """
    small = Image.fromarray(image)
    small.thumbnail((2 * THUMBNAIL_HEIGHT, THUMBNAIL_HEIGHT), Image.Resampling.LANCZOS)
    if blur:
        small = small.filter(ImageFilter.GaussianBlur(small.height / 24))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


_IMAGE = re.compile('src="data:image/[^"]*"')
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.globals |= {"static": _static, "counted": counted}
_ENVIRONMENT.filters["number"] = number
