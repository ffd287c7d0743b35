"""The page of many runs in a browser: it opens without complaint, sorts, filters, and fits a phone."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_layout import WIDTHS, layout_faults

from lreid.report import write_page
from lreid.report.rendering import Match, RankedQuery, Tile, inside, ranked_panel, thumbnail, write_ranked
from lreid.report.tables import grouped

COMMAND = "python tools/train.py SEED 0 METHOD.A_KEY_WITH_A_NAME_THAT_IS_AS_LONG_AS_A_NAME_CAN_BE 0.123456789"
CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs Python's playwright")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("real_charts"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page_of(browser: Any, results: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page about eight runs of four methods on two benchmarks; whatever goes wrong on it fails the test."""
    runs = [
        results(
            rows=4,
            seed=seed,
            method=method,
            benchmark=benchmark,
            shift=shift + seed,
            command=COMMAND,
            config={"METHOD.A_KEY_WITH_A_NAME_THAT_IS_AS_LONG_AS_A_NAME_CAN_BE": shift},
            drift=[{"task": 1, "buffer": {"step": [0.1, 0.2], "since_switch": [0.1, 0.3]}}],
        )
        for benchmark, methods in (("market", {"dwopp": 9, "a-joint": 20, "zeta": 4}), ("veri", {"dwopp": 1}))
        for method, shift in methods.items()
        for seed in (0, 1)
    ]
    write_page(tmp_path / "many.html", runs)
    address = (tmp_path / "many.html").as_uri()
    contexts, faults = [], []

    def opened(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(request.url) if request.url != address else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def column(page: Any, number: int) -> list[str]:
    """What is shown in a column of the comparison."""
    return page.eval_on_selector_all(
        "table.compared tbody tr:not(.off)", f"rows => rows.map(row => row.cells[{number}].textContent)"
    )


def width(page: Any) -> int:
    return page.evaluate("document.scrollingElement.scrollWidth")


def test_heading_sorts_by_click_and_by_enter(page_of: Any) -> None:
    page = page_of()
    page.get_by_label("Filter").focus()
    for _ in range(3):  # the section, the box of its table, its first head
        page.keyboard.press("Tab")
    focused = page.evaluate(
        "[document.activeElement.tagName, document.activeElement.textContent,"
        " getComputedStyle(document.activeElement).outlineStyle]"
    )
    assert focused == ["BUTTON", "method", "solid"]
    assert column(page, 0) == ["dwopp", "a-joint", "zeta", "dwopp"]
    head = page.locator("table.compared th", has_text="seen mAP").first
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, 0) == ["a-joint", "dwopp", "zeta", "dwopp"]
    assert [float(text.split()[0]) for text in column(page, 2)] == [41.0, 30.0, 25.0, 22.0]
    page.keyboard.press("Enter")  # on the head, which has the focus
    assert head.get_attribute("aria-sort") == "ascending" and column(page, 0)[0] == "dwopp"
    name = page.locator("table.compared th", has_text="method")
    name.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert column(page, 0) == ["a-joint", "dwopp", "dwopp", "zeta"]
    assert page.locator("table.compared th[aria-sort]").count() == 1


def test_filter_hides_lines_of_tables_and_charts(page_of: Any) -> None:
    page = page_of()
    page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
    box = page.get_by_label("Filter")
    box.fill("DWOPP veri")
    assert column(page, 0) == ["dwopp"] and page.locator("output").text_content() == "1 of 4 shown"
    assert page.get_by_role("heading", name="Learning curve, veri").is_visible()
    assert not page.get_by_role("heading", name="Learning curve, market").is_visible()
    box.fill("zeta")
    visible = page.eval_on_selector_all(
        "svg g[data-name]",
        "lines => lines.filter(each => each.getBoundingClientRect().width).map(each => each.dataset.name)",
    )
    assert visible and all(name.startswith("zeta") for name in visible)
    box.fill("")
    assert len(column(page, 0)) == 4 and page.locator("output").text_content() == ""


@pytest.mark.parametrize("wide", WIDTHS.values(), ids=WIDTHS)
def test_nothing_is_cut_off_and_the_page_does_not_scroll_sideways(page_of: Any, wide: int) -> None:
    page = page_of(viewport={"width": wide, "height": 844})
    assert layout_faults(page) == []
    scrolls = page.eval_on_selector_all(".scroll", "all => all.map(each => each.scrollWidth > each.clientWidth)")
    assert any(scrolls) or wide == WIDTHS["desk"]  # what is wide scrolls by itself


def test_layout_faults_are_detected(page_of: Any) -> None:
    page = page_of()
    page.add_style_tag(content="th { max-width: 20px; overflow: hidden; white-space: nowrap }")
    assert any(fault.startswith("cut off: TH") for fault in layout_faults(page))
    page.add_style_tag(content="h1 { width: 3000px }")
    assert any(fault.startswith("the page scrolls sideways") for fault in layout_faults(page))


def test_link_opens_its_section(page_of: Any) -> None:
    page = page_of()
    assert not page.locator("#loss-market svg").first.is_visible()
    page.get_by_role("link", name="Loss, market").click()
    assert page.locator("#loss-market svg").first.is_visible()
    assert page.evaluate("document.querySelector('#loss-market').getBoundingClientRect().top") < 300


def test_command_is_copied(page_of: Any) -> None:
    page = page_of(permissions=["clipboard-read", "clipboard-write"])
    page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
    page.get_by_role("button", name="copy").first.click()
    page.get_by_role("button", name="copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == COMMAND


def test_dark_mode_is_dark(page_of: Any) -> None:
    colours = [
        page_of(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    light, dark = (sum(map(int, re.findall(r"\d+", colour))) for colour in colours)
    assert dark < 150 < 600 < light


def test_page_is_complete_without_javascript(page_of: Any) -> None:
    page = page_of(java_script_enabled=False)
    assert page.locator("table.compared tbody tr").count() == 4
    assert page.locator("th button").count() == 0 and not page.locator(".filter").is_visible()


def test_printed_page_is_light_and_shows_closed_sections(page_of: Any) -> None:
    page = page_of(color_scheme="dark")
    cell = page.locator("details details td").first
    assert not cell.is_visible()
    page.emulate_media(media="print")
    assert cell.is_visible() and not page.locator(".filter").is_visible()
    card = page.eval_on_selector("section", "each => getComputedStyle(each).backgroundColor")
    assert card == "rgb(255, 255, 255)"


def test_images_are_not_rendered_before_their_section_opens(browser: Any, tmp_path: Path) -> None:
    tile = Tile(thumbnail(np.full((64, 32, 3), 128, np.uint8)), "a.jpg", ("id 1",))
    matches = [Match(place + 1, "0.5", "wrong", tile) for place in range(400)]
    sections = [
        ranked_panel(name, "", [RankedQuery(tile, name, matches)]) for name in ("first", "second", "third", "fourth")
    ]
    write_ranked(tmp_path / "ranked.html", "Many", [], sections)
    page = browser.new_page(viewport={"width": 1366, "height": 800})
    page.goto((tmp_path / "ranked.html").as_uri())
    drawn = "section => [...document.querySelectorAll(`#${section} img`)].filter(each => each.checkVisibility()).length"
    height = page.evaluate("document.scrollingElement.scrollHeight")
    assert [page.evaluate(drawn, section) for section in ("first", "third", "fourth")] == [401, 401, 0]
    page.locator("#fourth summary").click()
    assert page.evaluate(drawn, "fourth") == 401
    assert page.evaluate("document.scrollingElement.scrollHeight") > 1.25 * height
    page.get_by_label("Filter").fill("ID fourth")
    assert page.locator("output").text_content() == "1 of 4 shown"
    assert [page.evaluate(drawn, section) for section in ("first", "fourth")] == [0, 401]
    assert layout_faults(page) == []
    page.close()


@pytest.mark.parametrize("wide", WIDTHS.values(), ids=WIDTHS)
def test_repeated_images_are_stored_once(browser: Any, results: Any, tmp_path: Path, wide: int) -> None:
    generator = np.random.default_rng(0)
    tiles = [
        Tile(thumbnail(generator.integers(0, 256, (64, 32, 3), np.uint8)), f"{each}.jpg", (f"identity {each}",))
        for each in range(30)
    ]
    matches = [Match(place + 1, "0.5", "wrong", tile) for place, tile in enumerate(tiles)]
    runs = [results(rows=4, method=f"method_{number}", shift=number) for number in range(12)]
    found = [ranked_panel(name, "", [RankedQuery(tiles[0], "", matches)]) for name in ("plaza", "mall")]
    more = [inside(f"Images, {each.method}", each.name, found) for each in grouped(runs)]
    write_page(tmp_path / "many.html", runs, more=more)
    assert (tmp_path / "many.html").read_text().count("base64,") == len(tiles)  # of 12 x 2 x 31 images
    page = browser.new_page(viewport={"width": wide, "height": 800})
    page.goto((tmp_path / "many.html").as_uri())
    assert page.evaluate("[...document.images].filter(each => each.complete || each.checkVisibility()).length") == 0
    assert page.locator("section:has(img) > details[open]").count() == 0
    page.get_by_label("Filter").fill("method_11")
    assert [page.locator(f"{each}:visible").count() for each in ("section:has(img)", ".contents [data-name]")] == [1, 1]
    page.locator("#images-method_11 summary").first.click()
    page.locator("#images-method_11 details details summary").last.click()
    last = page.locator("#images-method_11 details details").last.locator("img")
    assert last.count() == 31
    for place in (0, 30):
        last.nth(place).scroll_into_view_if_needed()
        page.wait_for_function("each => each.naturalWidth === 32", arg=last.nth(place).element_handle())
        assert last.nth(place).get_attribute("alt") == f"identity {max(place - 1, 0)}"
    sources = last.evaluate_all("all => all.map(each => each.src)")
    assert sources == [tile.source for tile in (tiles[0], *tiles)]
    page.get_by_label("Filter").fill("")
    assert layout_faults(page) == []
    page.close()
