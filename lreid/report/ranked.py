"""Write a page of queries and their nearest gallery images, as one file that works offline."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageFilter

from lreid.files import write_text
from lreid.report.rendering import Panel, anchored, render

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
        jpeg: result of :func:`thumbnail`; None if the file is missing.
        name: source of the image, shown on hover.
        labels: identity and camera of the image.
    """

    jpeg: bytes | None
    name: str
    labels: tuple[str, ...]

    @property
    def source(self) -> str:
        """The JPEG as a data URI."""
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg or b'').decode()}"


@dataclass(frozen=True)
class Match:
    """One rank of a ranking.

    Attributes:
        rank: the rank, from 1.
        score: the score, as text.
        verdict: a key of :data:`VERDICTS`; empty if there is no verdict.
        tile: the image at this rank.
    """

    rank: int
    score: str
    verdict: Verdict
    tile: Tile


@dataclass(frozen=True)
class RankedQuery:
    """A query with its ranking, best first.

    Attributes:
        tile: the query image.
        headline: one line about the outcome.
        matches: matches by ascending rank; a rank may be missing.
    """

    tile: Tile
    headline: str
    matches: Sequence[Match]


@dataclass(frozen=True)
class Section:
    """Rankings that belong together.

    Attributes:
        title: heading.
        note: one line below the heading.
        rankings: the rankings, in this order.
        wide: whether the images are wider than high, as for vehicles.
    """

    title: str
    note: str
    rankings: Sequence[RankedQuery]
    wide: bool = False


def write_ranked(
    path: Path,
    title: str,
    intro: Sequence[str],
    sections: Sequence[Section],
    *,
    links: Sequence[tuple[str, str]] = (),
    more: Sequence[Panel] = (),
) -> None:
    """Write the page atomically.

    Args:
        path: the file.
        title: heading.
        intro: lines below the heading.
        sections: rankings.
        links: text and address of each link.
        more: sections that follow the rankings.

    Raises:
        InputError: the page cannot be written; an existing page does not change.
    """
    panels = anchored([*map(ranked_panel, sections), *more])
    write_text(path, render("ranked.html", title=title, intro=intro, links=links, panels=panels))


def ranked_panel(section: Section) -> Panel:
    """Make the section of a page with the rankings, and with a legend of their verdicts."""
    verdicts = {match.verdict for each in section.rankings for match in each.matches}
    used = [verdict for verdict in VERDICTS if verdict in verdicts]
    body = render("rankings.html", verdicts=VERDICTS, used=used, rankings=section.rankings)
    return Panel(section.title, section.note, body, section.wide)


def thumbnail(image: np.ndarray, *, blur: bool = False) -> bytes:
    """Encode an image as JPEG, at most ``HEIGHT`` pixels high; smaller images are not enlarged.

    Args:
        image: (H, W, 3) uint8, RGB.
        blur: blur the image until faces cannot be recognised, for pages that others will see.
    """
    small = Image.fromarray(image)
    small.thumbnail((2 * HEIGHT, HEIGHT), Image.Resampling.LANCZOS)
    if blur:
        small = small.filter(ImageFilter.GaussianBlur(small.height / 24))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
