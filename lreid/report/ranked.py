"""A page of ranked pictures: queries and the gallery images nearest to them. One file, no network, no scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageFilter

from lreid.files import write_text
from lreid.report.page import document, section

HEIGHT = 144  # pixels of a thumbnail

Verdict = Literal["right", "wrong", "distractor", "known", "below", ""]

# Sign and meaning of each verdict. The sign and the line of the frame tell without the colour.
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "right": ("✓", "the same identity"),
    "wrong": ("✗", "another identity"),
    "distractor": ("○", "a distractor: nobody looks for it"),
    "known": ("✓", "reaches the threshold"),
    "below": ("?", "below the threshold"),
}

RANKED_STYLE = """
:root { --doubt: #8a5a00; } @media screen and (prefers-color-scheme: dark) { :root { --doubt: #e8b44c; } }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 12px 0 0; padding: 0; list-style: none; }
.ranking { display: grid; grid-template-columns: 112px minmax(0, 1fr); gap: 4px 16px;
  border-top: 1px solid var(--rule); padding-top: 14px; margin-top: 14px; }
.ranking > p { grid-column: 1 / -1; margin: 0 0 4px; overflow-wrap: anywhere; }
.matches { display: grid; gap: 10px 8px; grid-template-columns: repeat(auto-fill, minmax(70px, 1fr));
  margin: 0; padding: 0; list-style: none; align-items: start; }
.tile figcaption { font-weight: 400; font-size: .8rem; line-height: 1.35; overflow-wrap: anywhere; }
.tile figcaption span { display: block; }
.wide .matches { grid-template-columns: repeat(auto-fill, minmax(100px, 1fr)); }
.tile figcaption b { font-variant-numeric: tabular-nums; }
.frame { position: relative; border: 4px solid var(--rule); border-radius: 8px; overflow: hidden;
  background: var(--rule); }
.frame img, .gone { display: block; width: 100%; aspect-ratio: 1 / 2; object-fit: contain; }
.wide .frame img, .wide .gone { aspect-ratio: 4 / 3; }
.gone { display: grid; place-items: center; text-align: center; font-size: .75rem; color: var(--soft); }
.right .frame, .known .frame { border-color: var(--good); }
.wrong .frame { border: 4px dashed var(--bad); }
.distractor .frame { border: 4px dotted var(--bad); }
.below .frame { border: 4px dashed var(--doubt); }
.sign { display: inline-grid; place-items: center; width: 22px; height: 22px; border-radius: 50%;
  font: 700 14px/1 system-ui, sans-serif; color: var(--card); background: var(--soft); }
.frame .sign { position: absolute; right: 3px; top: 3px; }
.sign.right, .sign.known { background: var(--good); } .sign.wrong, .sign.distractor { background: var(--bad); }
.sign.below { background: var(--doubt); }
.legend .sign { margin-right: 6px; }
.far { position: relative; }
.far::before { content: ""; position: absolute; inset: 0 auto 0 -6px; border-left: 3px solid var(--soft); }
@media (max-width: 640px) {
  .ranking { grid-template-columns: 84px minmax(0, 1fr); gap: 4px 12px; }
  .wide .ranking { grid-template-columns: minmax(0, 1fr); } .wide .ranking > .tile { max-width: 160px; }
  .matches { grid-template-columns: repeat(auto-fill, minmax(62px, 1fr)); } }
"""


@dataclass(frozen=True)
class Picture:
    """A picture and the words below it.

    Attributes:
        jpeg: of :func:`thumbnail`; None where the file is gone.
        name: where it comes from; shown when pointed at.
        labels: who is on it, which camera took it.
    """

    jpeg: bytes | None
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """One place of a ranking.

    Attributes:
        rank: from 1.
        score: as text.
        verdict: a key of :data:`VERDICTS`; empty for none.
        picture: what was found there.
    """

    rank: int
    score: str
    verdict: Verdict
    picture: Picture


@dataclass(frozen=True)
class RankedQuery:
    """A query with what was found for it, best first.

    Attributes:
        query: what was looked for.
        headline: one line about the outcome.
        matches: by ascending rank; a rank may be missing.
    """

    query: Picture
    headline: str
    matches: Sequence[Match]


@dataclass(frozen=True)
class Section:
    """Rankings that belong together.

    Attributes:
        title: heading.
        note: one line below it.
        rankings: in order.
        wide: the pictures are wider than high, as those of vehicles.
    """

    title: str
    note: str
    rankings: Sequence[RankedQuery]
    wide: bool = False


def write_ranked(path: Path, title: str, intro: Sequence[str], sections: Sequence[Section]) -> None:
    """Writes the page, through a temporary file.

    Args:
        path: of the HTML file.
        title: heading and title of the page.
        intro: lines below the heading.
        sections: see :class:`Section`.

    Raises:
        InputError: the page cannot be written; one that was there stays.
    """
    body = [f"<h1>{escape(title)}</h1>", *(f'<p class="soft">{escape(line)}</p>' for line in intro)]
    write_text(path, document(title, [*body, *ranked_sections(sections)], style=RANKED_STYLE))


def ranked_sections(sections: Sequence[Section]) -> list[str]:
    """The legend of the verdicts and the sections, HTML for a page with :data:`RANKED_STYLE`."""
    used = {match.verdict for section in sections for each in section.rankings for match in each.matches}
    legend = "".join(
        f"<li>{_sign(verdict)}{escape(meaning)}</li>" for verdict, (_, meaning) in VERDICTS.items() if verdict in used
    )
    return [f'<ul class="legend">{legend}</ul>' if legend else "", *(_section(each) for each in sections)]


def thumbnail(image: np.ndarray, *, blur: bool = False) -> bytes:
    """A JPEG of an RGB image (H, W, 3) uint8, at most ``HEIGHT`` pixels high; small images stay small.

    Args:
        image: the picture.
        blur: smear it beyond recognition of a face, for pages that are shown around.
    """
    picture = Image.fromarray(image)
    picture.thumbnail((2 * HEIGHT, HEIGHT), Image.Resampling.LANCZOS)
    if blur:
        picture = picture.filter(ImageFilter.GaussianBlur(picture.height / 24))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def _section(ranked: Section) -> str:
    body = "\n".join(_ranking(ranking) for ranking in ranked.rankings)
    return section(ranked.title, escape(ranked.note), body, kind="wide" if ranked.wide else "")


def _ranking(ranking: RankedQuery) -> str:
    tiles, before = [], 0
    for match in ranking.matches:
        # A gap in the ranks is drawn as a line.
        far = ' class="far"' if match.rank > before + 1 else ""
        caption = f"<b>{match.rank}</b> · {escape(match.score)}"
        tiles.append(f"<li{far}>{_tile(match.picture, caption, match.verdict)}</li>")
        before = match.rank
    return (
        f'<div class="ranking"><p>{escape(ranking.headline)}</p>{_tile(ranking.query, "<b>Query</b>", "")}'
        f'<ol class="matches">{"".join(tiles)}</ol></div>'
    )


def _tile(picture: Picture, caption: str, verdict: Verdict) -> str:
    name = escape(picture.name)
    if picture.jpeg is None:
        shown = '<span class="gone">picture not found</span>'
    else:
        data = base64.b64encode(picture.jpeg).decode()
        shown = f'<img src="data:image/jpeg;base64,{data}" alt="{escape(", ".join(picture.labels))}">'
    sign = _sign(verdict) if verdict else ""
    labels = " ".join(f"<span>{escape(label)}</span>" for label in picture.labels)
    return (
        f'<figure class="tile {verdict}" title="{name}"><div class="frame">{shown}{sign}</div>'
        f"<figcaption><span>{caption}</span> {labels}</figcaption></figure>"
    )


def _sign(verdict: Verdict) -> str:
    sign, meaning = VERDICTS[verdict]
    return f'<span class="sign {verdict}" role="img" aria-label="{escape(meaning)}">{sign}</span>'
