"""The pages make a site without a warning, and the site needs no network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_site_is_whole_and_stands_alone(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason='pip install -e ".[docs]"')
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(repository / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    sources = {page.stem for page in (repository / "docs").glob("*.md")} | {"index", "CHANGELOG", "REPRODUCIBILITY"}
    made = {page.stem for page in tmp_path.glob("*.html")}
    assert sources <= made and (tmp_path / "data_flow.svg").exists()
    assert not (tmp_path / "hooks.py").exists()
    assert "class StayNear" in (tmp_path / "extending.html").read_text(encoding="utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"(?:https?:)?//", text), page
