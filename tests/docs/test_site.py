"""The pages make a site without a warning; it needs no network, has coloured code to copy, and fits desk and phone."""

import html
import re
import shutil
from pathlib import Path

import pytest
from page_layout import WIDTHS, layout_faults

import lreid
from lreid import losses, models, retrieval
from lreid.apps.cli import COMMANDS

REPOSITORY = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason='pip install -e ".[docs]"')
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(REPOSITORY / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_site_is_complete_and_self_contained(site: Path) -> None:
    sources = {page.relative_to(REPOSITORY / "docs").with_suffix("") for page in (REPOSITORY / "docs").rglob("*.md")}
    sources |= {Path(name) for name in ("index", "CHANGELOG", "REPRODUCIBILITY")}
    sources |= {Path("reference", "commands", name) for name in COMMANDS}
    made = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert sources <= made and (site / "data_flow.svg").exists()
    assert not (site / "hooks.py").exists()
    python = (site / "reference" / "api" / "lreid.html").read_text(encoding="utf-8")  # made of the docstrings
    assert all(f'id="lreid.{name}"' in python for name in lreid.__all__)
    assert "A query's ranking leaves out" in html.unescape(python)
    for package in (losses, models, retrieval):
        page = site / "reference" / "api" / f"{package.__name__.removeprefix('lreid.')}.html"
        shown = set(re.findall(r'id="lreid\.[\w.]*?(\w+)"', page.read_text(encoding="utf-8")))
        assert set(package.__all__) <= shown, page
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r":(?:func|class|meth|mod|attr):<code>", text), page  # roles of docstrings
        assert not re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"(?:https?:)?//", text), page


@pytest.mark.slow
def test_code_has_colours(site: Path) -> None:
    text = (site / "how-to" / "extending.html").read_text(encoding="utf-8")
    assert re.search(r'<span class="k">class</span> *(<span class="w"> </span>)?<span class="nc">StayNear</span>', text)
    zoo = (site / "MODEL_ZOO.html").read_text(encoding="utf-8")
    assert '<span class="c1"># ' in zoo  # of a shell, though the fence does not say so
    style = (site / "code.css").read_text(encoding="utf-8")
    assert all(f"[data-bs-theme={theme}] .codehilite .k," in style for theme in ("light", "dark"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_nothing_is_cut_off_and_code_can_be_copied(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Python's playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(f"{page.url}: {error}"))
        for file in sorted(site.rglob("*.html")):
            page.goto(file.as_uri())
            for wide in WIDTHS.values():
                page.set_viewport_size({"width": wide, "height": 844})
                assert layout_faults(page) == [], (file.name, wide)
        assert [each for each in errors if "search/worker.js" not in each] == []  # browsers let no file do that
        for wide in WIDTHS.values():
            page.set_viewport_size({"width": wide, "height": 844})
            page.goto((site / "how-to" / "common-problems.html").as_uri())
            page.locator("a[href$='#speed-of-the-evaluation']").first.click()
            page.locator("h2#speed-of-the-evaluation").wait_for()  # of the page that the link leads to
            page.goto((site / "MODEL_ZOO.html").as_uri())
            blocks = page.locator("pre")
            assert page.locator("button.copy").count() == blocks.count() > 5
            page.evaluate("navigator.clipboard.writeText('')")
            page.locator("button.copy").first.click()
            page.get_by_role("button", name="copied").wait_for()
            assert page.evaluate("navigator.clipboard.readText()").startswith("lreid zoo list\nlreid test")
        browser.close()
