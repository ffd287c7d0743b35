"""Cards for people."""

from pathlib import Path

from zoo_entries import write_card

from lreid.zoo import cards, find, published
from lreid.zoo.catalogue import describe, markdown_page, table

FIGURES = {
    "a": {"kind": "seen", "queries": 3, "images": 9, "mAP": 50.0, "rank1": 60.0, "rank5": 70.0, "rank10": 80.0},
    "b": {"kind": "seen", "queries": 3, "images": 9, "mAP": 60.0, "rank1": 80.0, "rank5": 90.0, "rank10": 99.0},
    "c": {"kind": "unseen", "queries": 3, "images": 9, "mAP": 12.34, "rank1": 20.0, "rank5": 30.0, "rank10": 40.0},
}


def test_the_page_is_up_to_date(repository: Path) -> None:
    """If not, run ``lreid zoo page``."""
    written = (repository / "MODEL_ZOO.md").read_text(encoding="utf-8")
    assert written == markdown_page(cards(), list(published().values()))
    assert find("dwopp-synthetic-10")  # which it has examples of


def test_means_over_galleries_and_aligned_columns(tmp_path: Path) -> None:
    many = write_card(tmp_path / "many.json", b"", figures=FIGURES, url="https://a/b")
    head, _, *rows = table([many, find("dwopp-synthetic-10")]).splitlines()
    assert "55.0 / 70.0" in rows[0] and "12.3 / 20.0" in rows[0] and rows[0].endswith("to download")
    assert rows[1].endswith("here") and "–" in rows[1]
    assert head.index("weights") == rows[0].index("to download") == rows[1].index("here")
    page = [line.split() for line in markdown_page([many], []).splitlines()]
    row = next(cells for cells in page if cells[:2] == ["|", "[`many`](#many)"])
    assert " ".join(row[-10:]) == "55.0 / 70.0 | 12.3 / 20.0 | 0.0 |"
    assert "| c | unseen | 3 | 9 | 12.3 | 20.0 | 30.0 | 40.0 |" in [" ".join(cells) for cells in page]


def test_the_text_of_a_card(tmp_path: Path) -> None:
    text = describe(write_card(tmp_path / "many.json", b"", figures=FIGURES, url="https://a/b", start_only=True))
    for part in (
        "initial weights only",
        "mAP 12.34, Rank-1 20.00",
        "rectangular AP, cosine, camera filter on",
        "SHA-256",
        "weights from   https://a/b",
        "72,000 images seen",
    ):
        assert part in text
