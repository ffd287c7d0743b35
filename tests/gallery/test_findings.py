"""What a search found, in lines and pages."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lreid.gallery import findings
from lreid.gallery.findings import rank1, summary, write_findings


def match(rank: int, path: str, identity: str | None, known: bool | None = True) -> dict[str, Any]:
    return {"rank": rank, "path": path, "identity": identity, "camera": None, "score": 1 - rank / 10, "known": known}


def found(
    image: str, expected: str | None, matches: list[dict[str, Any]], unknown: bool | None = False
) -> dict[str, Any]:
    best = next((each["identity"] for each in matches if each["known"] is not False), None)
    return {"image": image, "expected": expected, "unknown": unknown, "identity": best, "matches": matches}


def results(queries: list[dict[str, Any]], threshold: float | None = 0.5) -> dict[str, Any]:
    rate = None if threshold is None else 0.01
    about = {"threshold": threshold, "false_accept_rate": rate, "calibrated_on": 1000 if threshold else None}
    return {"gallery": "people.gallery", "images": 40, **about, "queries": queries}


QUERIES = [
    found("/q/1.png", "ann", [match(1, "/g/1.png", "ann")]),
    found("/q/2.png", "ann", [match(1, "/g/2.png", "ben"), match(2, "/g/1.png", "ann")]),
    found("/g/3.png", "ben", [match(1, "/g/3.png", "ben"), match(2, "/g/1.png", "ann")]),  # the image itself
    found("/q/4.png", "ben", []),
    found("/q/5.png", None, [match(1, "/g/1.png", "ann", known=False)], unknown=True),
]


def test_rank1_counts_queries_of_people_in_the_gallery_without_the_image_itself() -> None:
    assert rank1(QUERIES) == (4, 1)
    assert rank1(QUERIES[4:]) == (0, 0)


def test_the_summary_counts_found_and_unknown() -> None:
    counts, share = summary(results(QUERIES))
    assert "5 queries in 40 images" in counts and "4 recognised, 1 unknown" in counts
    assert "25.0 %" in share and "1 of 4" in share
    (line,) = summary(results(QUERIES[4:], None))
    assert "calibrate" in line


def test_pages_hold_every_query_once_the_wrong_ones_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    for index in range(6):
        pixels = generator.integers(0, 256, (144, 72, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
    people = ["ann", "ben"]
    queries = [
        found(
            str(tmp_path / f"{index % 3}.png"),
            people[index % 2],
            [match(rank + 1, str(tmp_path / f"{3 + rank}.png"), people[(index + rank) % 3 % 2]) for rank in range(3)],
        )
        | {"identity": f"query{index:03d}"}
        for index in range(40)
    ]
    monkeypatch.setattr(findings, "PAGE_BYTES", 200_000)
    out = tmp_path / "out"
    write_findings(results(queries), out)
    pages = sorted(out.glob("matches*.html"), key=lambda each: (len(each.name), each.name))
    assert len(pages) > 2
    texts = [page.read_text() for page in pages]
    shown = [name for text in texts for name in re.findall(r"query\d{3}", text)]
    assert sorted(shown) == [f"query{index:03d}" for index in range(40)]
    right = {f"query{i:03d}" for i, each in enumerate(queries) if each["matches"][0]["identity"] == each["expected"]}
    outcomes = [name in right for name in shown]
    assert outcomes == sorted(outcomes) and 0 < sum(outcomes) < 40
    assert all(len(text) < 400_000 for text in texts)
    for text in texts:
        links = re.findall(r'href="([^"#]+)(?:#([^"]*))?"', text)
        assert all(f'id="{name}"' in (out / link).read_text() for link, name in links if name)
        # Each kind of outcome by its first page.
        firsts = [min(n for n, each in enumerate(texts) if f"{kind}: the best" in each) for kind in ("Wrong", "Right")]
        assert [link for link, name in links if name] == [pages[number].name for number in firsts]
        assert [link for link, name in links if not name] == [page.name for page in pages]
    write_findings(results(queries[:2]), out)
    assert [each.name for each in out.glob("matches*.html")] == ["matches.html"]
