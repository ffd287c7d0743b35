"""What the pages tell people to type."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from PIL import Image
from processes import PATIENCE

from lreid.data.datasets import LOADERS
from lreid.data.inventory import PUBLISHED, look


def test_the_script_for_own_pictures_writes_a_list_without_faults(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "custom_data.md").read_text(encoding="utf-8")
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


def test_the_table_of_data_sets_has_every_name_and_the_published_counts(repository: Path) -> None:
    page = (repository / "docs" / "datasets.md").read_text(encoding="utf-8")
    rows = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            names, *cells = line.strip("|").split("|")
            rows |= dict.fromkeys(re.findall(r"`([\w+]+)`", names), cells)
    assert set(LOADERS) <= set(rows)
    for name, published in PUBLISHED.items():
        for split, cell in zip(("train", "query", "gallery"), rows[name], strict=False):
            count = published.get(f"{split} images")
            if count and cell.strip() != "as above":
                assert str(count) in cell, (name, split)
