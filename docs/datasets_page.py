"""Write what the code knows about data sets into docs/how-to/datasets.md: a table of names, a section per file.

    python docs/datasets_page.py

A test fails if the page is out of date.
"""

import re
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lreid.classification  # noqa: F401, registers its data sets
from lreid.data.datasets import files
from lreid.data.records import SPLITS
from lreid.data.spec import Spec

PAGE = Path(__file__).parent / "how-to" / "datasets.md"
BLOCK = "<!-- {0}: written by docs/datasets_page.py -->\n{1}\n<!-- end of {0} -->"


def table() -> str:
    """Make a table of all data set names with their published counts."""
    rows = ["| name | train | query | gallery | cameras | splits | |", "|---|---|---|---|---|---|---|"]
    for spec in (spec for module in files() for spec in module.SPECS):
        told = [[spec.published.get(f"{split} {kind}") for kind in ("identities", "images")] for split in SPLITS]
        counts = [
            " / ".join("–" if n is None else str(n) for n in pair) if pair != [None, None] else "" for pair in told
        ]
        cameras = str(spec.published.get("cameras", "")) if spec.cameras else "none"
        splits = str(spec.splits) if spec.splits > 1 else ""
        rows.append(f"| {' | '.join([f'`{spec.name}`', *counts, cameras, splits, spec.remark])} |")
    return "\n".join(rows)


def section(module: ModuleType) -> str:
    """Write the section of a data set from the docstring of its file and from its specifications."""
    head, _, body = (module.__doc__ or "").strip().partition("\n\n")
    title, _, paper = " ".join(head.split()).partition(" (")
    sources: dict[tuple[str, ...], list[str]] = {}
    for spec in module.SPECS:
        sources.setdefault(_terms(spec), []).append(f"`{spec.name}`")
    facts = [f"* {', '.join(names)}. {'. '.join(terms)}." for terms, names in sources.items()]
    fenced = re.sub(r"((?:^    .*\n?)+)", lambda tree: f"```\n{dedent(tree[1]).rstrip()}\n```\n", body, flags=re.M)
    return "\n\n".join([f"### {title}", f"{paper.removesuffix(').')}.", "\n".join(facts), fenced])


def _terms(spec: Spec) -> tuple[str, ...]:
    request = ", on request" if spec.on_request else ""
    source = f"From <{spec.source}>{request}" if spec.source else "No address"
    return source, f"Licence: {spec.licence}", f"Archives go to `{spec.folder}/`"


def written(page: str) -> str:
    """Return the content of the page with both generated blocks up to date."""
    blocks = {"table of names": table(), "data sets": "\n\n".join(section(module) for module in files())}
    for name, text in blocks.items():
        page = re.sub(BLOCK.format(name, "(.*?)"), lambda _: BLOCK.format(name, text), page, flags=re.S)  # noqa: B023
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
