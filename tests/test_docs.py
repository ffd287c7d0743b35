"""What the pages tell people to type."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

from PIL import Image
from processes import PATIENCE

from lreid.data.datasets import specs
from lreid.data.inventory import look


def test_the_script_for_own_images_writes_a_list_without_faults(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "tutorials" / "custom-data.md").read_text(encoding="utf-8")
    script = tmp_path / "index.py"
    script.write_text(re.search(r"```python\n(.*?)```", page, re.S)[1], encoding="utf-8")
    for person in ("anna", "ben, the elder", "carla", "dora"):
        (tmp_path / "shop" / person).mkdir(parents=True)
        for shot in (1, 2, 3):
            Image.new("RGB", (4, 8)).save(tmp_path / "shop" / person / f"{shot:04d}.jpg")
    subprocess.run([sys.executable, str(script), "shop"], cwd=tmp_path, check=True, timeout=PATIENCE)
    (finding,) = look("csv:shop/shop.csv", tmp_path, files=True)
    assert (finding.status, finding.notes) == ("there", [])
    data_set = finding.data_set
    assert (len(data_set.train), len(data_set.query), len(data_set.gallery)) == (6, 2, 4)
    assert {record.camid for record in data_set.query} != {record.camid for record in data_set.gallery}


def test_the_page_of_data_sets_says_what_the_code_knows(repository: Path) -> None:
    """A new data set may be missing until the script is run; what the page says of others is right."""
    page = (repository / "docs" / "how-to" / "datasets.md").read_text(encoding="utf-8")
    written = runpy.run_path(str(repository / "docs" / "datasets_page.py"))["written"](page)
    assert set(page.splitlines()) <= set(written.splitlines()), "run: python docs/datasets_page.py"
    assert all(f"\n| `{name}` |" in written and spec.source in written for name, spec in specs().items())
    assert "| `viper` | 316 / 632 | 316 / 316 | 316 / 316 | 2 | 20 |" in page


def test_files_of_tracks_are_named_where_data_goes(repository: Path) -> None:
    for page in ("docs/how-to/datasets.md", "datasets/README.md"):
        text = (repository / page).read_text(encoding="utf-8")
        assert all(file in text for file in specs()["veri776_tracks"].layout.files)
