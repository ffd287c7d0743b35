"""Links and images of the pages lead somewhere; nothing is asked of the network."""

import os
import re
from pathlib import Path

LINK = re.compile(r"\[[^\]\n]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
HEADING = re.compile(r"^#+ +(.*?) *$", re.M)


def anchors(page: str) -> set[str]:
    """Names of the headings of a page, as GitHub and mkdocs make them."""
    found: set[str] = set()
    for title in HEADING.findall(re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found


def test_anchors_are_those_of_the_headings() -> None:
    page = "# Of one's own, 2\n```\n# a comment\n```\n## Again\n## Again\n"
    assert anchors(page) == {"of-ones-own-2", "again", "again-1"}


def test_every_link_leads_somewhere(repository: Path, pages: dict[str, str]) -> None:
    broken, count = [], 0
    for page, text in pages.items():
        for link in LINK.findall(CODE.sub("", text)):
            if re.match(r"[a-z]+:", link):
                continue
            count += 1
            target, _, anchor = link.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            if not (repository / path).exists() or (anchor and anchor not in anchors(pages[path])):
                broken.append(f"{page}: {link}")
    assert not broken and count > 50


def test_every_page_is_linked_from_the_readme(pages: dict[str, str]) -> None:
    found, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page in found or page not in pages:
            continue
        found.add(page)
        for link in LINK.findall(pages[page]):
            waiting.append(os.path.normpath(os.path.join(os.path.dirname(page), link.partition("#")[0])))
    assert set(pages) == found


def test_included_files_are_examples(repository: Path, pages: dict[str, str]) -> None:
    included = {name for text in pages.values() for name in re.findall(r"^<!-- include (\S+) -->$", text, re.M)}
    assert included and all(re.match(r"examples/\w+\.py$", name) and (repository / name).exists() for name in included)
