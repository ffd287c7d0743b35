import pytest
from markupsafe import Markup

from lreid.report import sections


@pytest.fixture
def charted(monkeypatch):
    """The lines that the next page shows, by the title of the chart without its axis."""
    charts = {}

    def note(lines, title, axis):
        charts[title.partition(" by ")[0]] = lines
        return Markup("<svg></svg>")

    monkeypatch.setattr(sections, "line_chart", note)
    return charts
