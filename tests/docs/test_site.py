"""The pages make a site without a warning, and the site needs no network."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import lreid


def test_the_site_is_whole_and_stands_alone(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason='pip install -e ".[docs]"')
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(repository / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    sources = {page.stem for page in (repository / "docs").glob("*.md")} | {"index", "CHANGELOG", "REPRODUCIBILITY"}
    made = {page.stem for page in tmp_path.glob("*.html")}
    assert sources <= made and (tmp_path / "data_flow.svg").exists()
    assert not (tmp_path / "hooks.py").exists()
    assert "class StayNear" in (tmp_path / "extending.html").read_text(encoding="utf-8")
    python = (tmp_path / "api" / "lreid.html").read_text(encoding="utf-8")  # made of the docstrings
    assert all(f'id="lreid.{name}"' in python for name in lreid.__all__)
    assert "Left out of a query's ranking" in html.unescape(python)
    api = {page.stem for page in (tmp_path / "api").glob("*.html")}
    assert api == {page.stem for page in (repository / "docs" / "api").glob("*.md")}
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r":(?:func|class|meth|mod|attr):<code>", text), page  # roles of docstrings
        assert not re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"(?:https?:)?//", text), page
