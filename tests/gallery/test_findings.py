"""Results of a search as values for JSON, lines of text and pages."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lreid.errors import InputError
from lreid.gallery import Matches, findings
from lreid.gallery.findings import rank1, summary, too_few, verdict, write_findings


def match(rank: int, path: str, identity: str | None, known: bool | None = True) -> dict[str, Any]:
    return {"rank": rank, "path": path, "identity": identity, "camera": None, "score": 1 - rank / 10, "known": known}


def finding(image: str, expected: str | None, *matches: dict[str, Any], unknown: bool | None = False) -> dict[str, Any]:
    best = next((each["identity"] for each in matches if each["known"] is not False), None)
    return {"image": image, "expected": expected, "unknown": unknown, "identity": best, "matches": [*matches]}


def results(queries: list[dict[str, Any]], threshold: float | None = 0.5) -> dict[str, Any]:
    rate = None if threshold is None else 0.01
    about = {"threshold": threshold, "false_accept_rate": rate, "calibrated_on": 1000 if threshold else None}
    return {"gallery": "people.gallery", "images": 40, **about, "queries": queries}


QUERIES = [
    finding("/q/1.png", "ann", match(1, "/g/1.png", "ann")),
    finding("/q/2.png", "ann", match(1, "/g/2.png", "ben"), match(2, "/g/1.png", "ann")),
    finding("/g/3.png", "ben", match(1, "/g/3.png", "ben"), match(2, "/g/1.png", "ann")),  # the image itself
    finding("/q/4.png", "ben"),
    finding("/q/5.png", None, match(1, "/g/1.png", "ann", known=False), unknown=True),
]


def test_matches_are_ranked_from_1_and_missing_matches_are_left_out() -> None:
    keys, names = np.array([[7, 3, -1]]), np.array([[None, "ann", None]], dtype=object)
    paths, scores = np.array([["b.png", "a.png", ""]], dtype=object), np.array([[0.9, 0.75, -np.inf]])
    matches = Matches(scores, keys, names, names, keys, paths, known=np.array([[False, True, False]]))
    (answer,) = findings.findings(matches, ["q.png"], ["ann"], calibrated=True)
    first = {"rank": 1, "path": "b.png", "identity": None, "camera": None, "score": 0.9, "known": False}
    second = {"rank": 2, "path": "a.png", "identity": "ann", "camera": "ann", "score": 0.75, "known": True}
    assert answer["matches"] == [first, second]
    assert (answer["image"], answer["expected"], answer["identity"]) == ("q.png", "ann", "ann")
    assert answer["unknown"] is False
    (answer,) = findings.findings(matches, ["q.png"], [None], calibrated=False)
    assert [each["known"] for each in answer["matches"]] == [None, None]
    assert answer["unknown"] is answer["identity"] is answer["expected"] is None


def test_rank1_counts_queries_of_enrolled_people_without_the_image_itself() -> None:
    assert rank1(QUERIES) == (4, 1)
    assert rank1(QUERIES[4:]) == (0, 0)


def test_summary_counts_recognised_and_unknown_queries() -> None:
    counts, share = summary(results(QUERIES))
    assert "5 queries in 40 images" in counts and "4 recognised, 1 unknown" in counts
    assert "25.0 %" in share and "1 of 4" in share
    (line,) = summary(results(QUERIES[4:], None))
    assert "calibrate" in line


ANN, NAMELESS = match(1, "a", "ann"), match(1, "b", None, known=False)
BELOW = match(2, "a", "ann", known=False)


@pytest.mark.parametrize(
    ("query", "threshold", "line"),
    [
        (finding("q", None), 0.5, "the gallery has no image"),
        (finding("q", None, ANN), None, "nearest: ann, 0.900"),
        (finding("q", None, NAMELESS, match(2, "a", "ann")), None, "nearest: an identity without a name, 0.900"),
        (finding("q", None, NAMELESS, unknown=True), 0.5, "unknown: none of the matches has a name, threshold 0.5"),
        (finding("q", None, ANN | {"known": False}, unknown=True), 0.95, "unknown: the nearest is ann with 0.900"),
        (finding("q", None, NAMELESS, BELOW, unknown=True), 0.95, "unknown: the nearest is ann with 0.800"),
        (finding("q", None, NAMELESS, match(2, "a", "ann")), 0.5, "known: ann, 0.800, threshold 0.5"),
    ],
)
def test_verdict_names_the_nearest_person(query: dict[str, Any], threshold: float | None, line: str) -> None:
    assert verdict(query, threshold, None if threshold is None else 0.01).startswith(line)


@pytest.mark.parametrize("rule", [(None, 0.01), (0.5, None)])
def test_verdict_without_a_calibration_names_the_nearest(rule: tuple[float | None, float | None]) -> None:
    assert verdict(QUERIES[0], *rule).startswith("nearest: ")


def test_too_few_images_for_a_false_accept_rate() -> None:
    assert too_few(99, 0.01) and not too_few(100, 0.01)
    assert too_few(None, 0.01) == too_few(5, 0.0) == too_few(5, None) == ""


def test_pages_hold_every_query_once_with_wrong_matches_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    for index in range(6):
        pixels = generator.integers(0, 256, (144, 72, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
    people = ["ann", "ben"]
    queries = [
        finding(
            str(tmp_path / f"{index % 3}.png"),
            people[index % 2],
            *(match(rank + 1, str(tmp_path / f"{3 + rank}.png"), people[(index + rank) % 3 % 2]) for rank in range(3)),
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
    # Each outcome links to its first page.
    firsts = [min(n for n, each in enumerate(texts) if f"{kind}: the best" in each) for kind in ("Wrong", "Right")]
    for text in texts:
        links = re.findall(r'href="([^"#]+)(?:#([^"]*))?"', text)
        assert all(f'id="{name}"' in (out / link).read_text() for link, name in links if name)
        assert [link for link, name in links if name] == [pages[number].name for number in firsts]
        assert [link for link, name in links if not name] == [page.name for page in pages]
    before = {page: page.read_bytes() for page in pages[1:]}
    write_findings(results(queries[:2]), out)
    assert {page: page.read_bytes() for page in before} == before  # pages may be the user's


@pytest.mark.parametrize("name", ["matches.html", "matches.json"])
def test_files_that_lreid_did_not_write_are_not_replaced(tmp_path: Path, name: str) -> None:
    for content in ("mine", '{"generator": "other"}', "pages that lreid generated"):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=f"^{tmp_path / name}: "):
            write_findings(results([finding("a.png", None)]), tmp_path)
        assert (tmp_path / name).read_text() == content and len([*tmp_path.iterdir()]) == 1
