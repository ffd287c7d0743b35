"""What every page is made of: the frame, sections, and tables that scroll in a box of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from lreid.report.script import SCRIPT
from lreid.report.style import STYLE


class Figure(NamedTuple):
    """A number in a table: how it is written, and what it is sorted by; None stays last."""

    text: str
    value: float | None


class Row(NamedTuple):
    """A line of a table.

    Attributes:
        name: what the filter of the page looks at; empty where it shall leave the line alone.
        cells: words as they are, numbers as :class:`Figure`; the first is the head of the line.
    """

    name: str
    cells: Sequence[str | Figure]


def document(title: str, body: Iterable[str], *, style: str = "") -> str:
    """A whole HTML page that needs no network; with the script where a table can be sorted.

    Args:
        title: of the page and, by the caller, its heading; escaped here.
        body: parts of ``<main>``, HTML.
        style: more style, behind that of all pages.
    """
    content = "\n".join(filter(None, body))
    script = f"<script>{SCRIPT}</script>\n" if '<table class="sortable' in content else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f"{content}\n</main>\n{script}</body>\n</html>\n"
    )


def section(title: str, note: str, body: str, *, kind: str = "") -> str:
    """A card with a heading and a line about what it shows; nothing where the body is empty.

    Args:
        title: text.
        note, body: HTML.
        kind: class of the section, for its style.
    """
    if not body:
        return ""
    told = f'<p class="soft">{note}</p>\n' if note else ""
    kind = f' class="{kind}"' if kind else ""
    return f"<section{kind}>\n<h2>{escape(title)}</h2>\n{told}{body}\n</section>"


def scroll(content: str, title: str, kind: str = "") -> str:
    """A box that scrolls sideways, by keyboard too, so that the page does not."""
    return (
        f'<div class="{f"scroll {kind}".strip()}" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"{content}</div>"
    )


def table(title: str, heads: Sequence[str], rows: Sequence[Row], *, compared: bool = False) -> str:
    """A table that is sorted by a click on a head.

    Args:
        title: for screen readers.
        heads: text, one a column.
        rows: see :class:`Row`.
        compared: its lines are what the filter counts.
    """
    numbers = [all(isinstance(row.cells[column], Figure) for row in rows) for column in range(len(heads))]
    classes = [' class="number"' if is_number else "" for is_number in numbers]
    head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(heads, classes, strict=True))
    kind = "sortable list compared" if compared else "sortable list"
    lines = "\n".join(_line(row) for row in rows)
    return scroll(f'<table class="{kind}"><thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table>', title)


def _line(row: Row) -> str:
    first, *others = row.cells
    cells = [
        f'<td data-value="{"" if cell.value is None else f"{cell.value:.6g}"}">{escape(cell.text)}</td>'
        if isinstance(cell, Figure)
        else f'<td class="text">{escape(cell)}</td>'
        for cell in others
    ]
    name = f' data-name="{escape(row.name)}"' if row.name else ""
    return f'<tr{name}><th scope="row" title="{escape(str(first))}">{escape(str(first))}</th>{"".join(cells)}</tr>'
