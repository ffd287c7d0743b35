"""Faults of a page in a browser: text that is cut off or outside the screen."""

from typing import Any

WIDTHS = {"desk": 1366, "phone": 390}  # pixels

FAULTS = """() => {
  const faults = [], wide = document.scrollingElement.clientWidth;
  if (document.scrollingElement.scrollWidth > wide)
    faults.push(`the page scrolls sideways: ${document.scrollingElement.scrollWidth} of ${wide} pixels`);
  const scrolls = each => each && (["auto", "scroll"].includes(getComputedStyle(each).overflowX) ||
    scrolls(each.parentElement));
  const label = each => `${each.tagName} "${each.textContent.trim().slice(0, 40)}"`;
  for (const each of document.querySelectorAll("body *")) {
    if (!each.checkVisibility() || !each.textContent.trim()) continue;
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    if (!(each instanceof SVGElement) && ["hidden", "clip"].includes(style.overflowX) &&
        each.scrollWidth > each.clientWidth + 1 && style.position !== "absolute")
      faults.push(`cut off: ${label(each)}`);
    if (box.width && (box.right > wide + 1 || box.left < -1) && !scrolls(each.parentElement))
      faults.push(`beside the screen: ${label(each)}`);
    if (each instanceof SVGTextElement) {
      const paper = each.ownerSVGElement.getBoundingClientRect();
      if (box.left < paper.left - 1 || box.right > paper.right + 1 || box.top < paper.top - 1 ||
          box.bottom > paper.bottom + 1)
        faults.push(`beyond its chart: ${label(each)}`);
    }
  }
  return faults;
}"""


def layout_faults(page: Any) -> list[str]:
    """Open all sections, and list text that is cut off or outside the screen."""
    page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
    return page.evaluate(FAULTS)
