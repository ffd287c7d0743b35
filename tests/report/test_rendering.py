"""What templates make of values."""

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from lreid.report.rendering import Cell, Panel, Table, TableRow, anchored, render


def table(*columns):
    rows = [TableRow("a & b", ["<first>", *cells]) for cells in zip(*columns, strict=True)]
    return Table("numbers", ["name", *(f"head {place}" for place in range(len(columns)))], rows)


def test_sections_of_one_title_have_unique_anchors():
    names = [name for name, _ in anchored([Panel(title, "", Markup()) for title in ("Añ, b!", "añ b", "…", "…")])]
    assert names == ["añ-b", "añ-b-", "section", "section-"]


def test_numbers_sort_by_value():
    page = render("table.html", title="", note="", table=table([Cell("1.2 ± 3", 1.23456789), Cell("–", None)]))
    assert '<td data-value="1.23457">1.2 ± 3</td>' in page and '<td data-value="">–</td>' in page
    assert '<th scope="row" title="&lt;first&gt;">&lt;first&gt;</th>' in page and 'data-name="a &amp; b"' in page


def test_column_of_cells_is_numeric():
    mixed = table([Cell("1", 1), Cell("2", 2)], [Cell("1", 1), "word"])
    assert [mixed.is_number(column) for column in range(3)] == [False, True, False]
    assert '<th scope="col" class="number">head 0</th>' in render("table.html", title="", note="", table=mixed)


def test_missing_template_value_is_an_error():
    with pytest.raises(UndefinedError, match="facts"):
        render("facts.html", title="", note="")
