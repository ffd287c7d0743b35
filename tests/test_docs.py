"""Generated pages are up to date."""

import runpy
from pathlib import Path

import lreid.classification  # noqa: F401, registers its data sets
from lreid.data.datasets import specs


def test_page_of_data_sets_is_up_to_date(repository: Path) -> None:
    # A new data set may be missing until the script is run; the other lines must be right.
    page = (repository / "docs" / "how-to" / "datasets.md").read_text(encoding="utf-8")
    written = runpy.run_path(str(repository / "docs" / "datasets_page.py"))["written"](page)
    assert set(page.splitlines()) <= set(written.splitlines()), "run: python docs/datasets_page.py"
    assert all(f"\n| `{name}` |" in written and spec.source in written for name, spec in specs().items())
    assert "| `viper` | 316 / 632 | 316 / 316 | 316 / 316 | 2 | 20 |" in page
