"""Write a page of queries and their nearest gallery images, as one file that works offline."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageFilter

from lreid.report.rendering import Panel, anchored, render
from lreid.utils.files import write_text

HEIGHT = 144  # maximum size of a thumbnail, pixels

Verdict = Literal["right", "wrong", "distractor", "known", "below", ""]

# Sign and meaning of each verdict; readers can distinguish signs and frames without colour.
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "right": ("✓", "the same identity"),
    "wrong": ("✗", "another identity"),
    "distractor": ("○", "a distractor: no query has its identity"),
    "known": ("✓", "reaches the threshold"),
    "below": ("?", "below the threshold"),
}


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


@dataclass(frozen=True)
class Section:
    """Rankings that are shown together.

    Attributes:
        note: line below the heading.
        wide: whether images are wider than high, as for vehicles.
    """

    title: str
    note: str
    rankings: Sequence[RankedQuery]
    wide: bool = False


def write_ranked(
    path: Path, title: str, intro: Sequence[str], sections: Sequence[Section], *, links: Sequence[tuple[str, str]] = ()
) -> None:
    """Write a page of rankings, atomically.

    Args:
        path: path of the page.
        intro: lines below the heading.
        sections: rankings.
        links: text and address of each link.

    Raises:
        InputError: the page cannot be written; an existing page does not change.
    """
    panels = anchored(map(ranked_panel, sections))
    write_text(path, render("ranked.html", title=title, intro=intro, links=links, panels=panels))


def ranked_panel(section: Section) -> Panel:
    """Make the section of a page that contains the rankings and a legend of their verdicts."""
    verdicts = {match.verdict for each in section.rankings for match in each.matches}
    used = [verdict for verdict in VERDICTS if verdict in verdicts]
    body = render("rankings.html", verdicts=VERDICTS, used=used, rankings=section.rankings)
    return Panel(section.title, section.note, body, section.wide)


def thumbnail(image: np.ndarray, *, blur: bool = False) -> bytes:
    """Encode an image as JPEG of at most ``HEIGHT`` pixels in height; smaller images are not enlarged.

    Args:
        image: (H, W, 3) uint8, RGB.
        blur: whether to blur the image until faces cannot be recognised, for pages that others will see.
    """
    small = Image.fromarray(image)
    small.thumbnail((2 * HEIGHT, HEIGHT), Image.Resampling.LANCZOS)
    if blur:
        small = small.filter(ImageFilter.GaussianBlur(small.height / 24))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
