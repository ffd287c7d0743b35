"""The page of the server in a browser: drop images, move the threshold, add, rename, remove and undo."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_layout import WIDTHS, layout_faults
from processes import wait_until

pytest.importorskip("fastapi", reason="needs lreid[serve]")
playwright = pytest.importorskip("playwright.sync_api", reason="needs Python's playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]

NAME = "<img src=x onerror=alert(1)>"  # of a person; the page must not interpret it
Serve = Callable[..., tuple[subprocess.Popen, str]]
DROP = """([name, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], name));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, cancelable: true}));
}"""


@pytest.fixture
def page(serve: Serve, gallery: Path) -> Iterator[Any]:
    """The page of a server with a token; errors and requests to other servers fail the test."""
    _, address = serve(gallery, LREID_TOKEN="a-token-of-the-test")
    faults: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTHS["phone"], "height": 844})
        page.goto(address)
        page.wait_for_selector("#access:not([hidden])")  # the browser logs an error before the token is given
        page.on("console", lambda message: None if " 422 " in message.text else faults.append(message.text))
        page.on("dialog", lambda dialog: dialog.accept("renamed" if dialog.type == "prompt" else None))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request", lambda each: faults.append(each.url) if not each.url.startswith((address, "blob:")) else None
        )
        page.fill("#token", "a-token-of-the-test")
        page.click("#access button")
        playwright.expect(page.locator("#about")).to_contain_text("identities")
        yield page
        browser.close()
    assert faults == []


def shown(page: Any) -> list[str]:
    return page.eval_on_selector_all(".matches li", "all => all.map(each => each.querySelector('span').textContent)")


def test_image_is_searched_added_removed_and_restored(page: Any, queries: list[Path]) -> None:
    page.evaluate(DROP, ["new.png", list(queries[0].read_bytes())])
    page.wait_for_selector(".matches li")
    first = shown(page)
    assert len(first) == 12 and first[0].startswith("1. p")
    images = "all => all.filter(each => each.naturalWidth).length"
    wait_until(lambda: page.eval_on_selector_all("img", images) == 13)

    def verdict(threshold: float) -> str:
        page.eval_on_selector(
            "#threshold", "(each, value) => { each.value = value; each.dispatchEvent(new Event('input')); }", threshold
        )
        return page.inner_text(".verdict")

    assert verdict(1.0).startswith("unknown") and page.locator(".matches li.known").count() == 0
    assert verdict(0.0).startswith("p")
    named = page.inner_text(".verdict").partition(" ")[0]  # only this person is green
    green = page.eval_on_selector_all(".matches li", "all => all.map(each => each.className === 'known')")
    assert green == [words.endswith(f" {named}") for words in first] and 0 < sum(green) < 12

    page.fill("[name=identity]", NAME)
    page.click(".add button")
    playwright.expect(page.locator("#message")).to_have_text("Added.")
    assert page.inner_text(".verdict").startswith(f"{NAME} (1.000)") and shown(page)[0].startswith(f"1. {NAME}")
    assert page.locator(".matches span img").count() == 0
    page.locator(".matches li button").first.click()
    playwright.expect(page.locator("#message")).to_have_text("Removed.")
    assert shown(page) == first
    page.click("#undo")
    playwright.expect(page.locator("#message")).to_have_text("Undone.")
    assert shown(page)[0].startswith(f"1. {NAME}") and page.is_hidden("#undo")
    for wide in WIDTHS.values():
        page.set_viewport_size({"width": wide, "height": 844})
        assert layout_faults(page) == []
        inside = """all => all.every(each => each.getBoundingClientRect().right <=
            each.closest("form, section, main").getBoundingClientRect().right)"""
        assert page.eval_on_selector_all("input, button", inside)  # layout_faults sees text only

    people = page.locator("#list li").count()
    page.locator("#list li").first.locator("button").first.click()  # rename
    playwright.expect(page.locator("#message")).to_have_text("Renamed.")
    assert page.locator("#list li").count() == people and shown(page)[0] == "1. renamed"
    page.locator("#list li", has_text="renamed").locator("button").last.click()
    playwright.expect(page.locator("#message")).to_have_text("Removed.")
    assert page.locator("#list li").count() == people - 1 and shown(page) == first

    verdict(0.9)
    page.reload()
    playwright.expect(page.locator("#about")).to_contain_text("identities")
    assert page.input_value("#threshold") == "0.9"
    page.set_input_files("#files", [queries[0], __file__, queries[-1]])
    playwright.expect(page.locator(".verdict", has_text="searching")).to_have_count(0)
    counts = page.eval_on_selector_all(".matches", "all => all.map(each => each.children.length)")
    assert counts == [12, 0, 12] and page.is_hidden("#busy")
