"""All figures of a test set and its hardest rankings, worked out by hand on points of a circle."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lreid.data.records import QueryGallery, Record
from lreid.errors import InputError
from lreid.evaluation.test_report import hardest_rankings, row_of
from lreid.evaluation.test_set import ListedTest
from lreid.retrieval import FaissIndex, evaluate
from lreid.retrieval.rerank import KReciprocal


def on_circle(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def images(*people: tuple[int, int]) -> SimpleNamespace:
    """Records with identity and camera, as :class:`lreid.data.images.Images` keeps them."""
    records = tuple(Record(f"{i}-{pid}-{camid}", pid, camid) for i, (pid, camid) in enumerate(people))
    pids, camids = (np.array(column, np.int64) for column in zip(*people, strict=True))
    return SimpleNamespace(records=records, pids=pids, camids=camids)


QUERY = images((1, 1), (2, 1), (3, 1), (4, 1))
GALLERY = images((1, 2), (9, 2), (1, 3), (2, 2), (1, 1), (-1, 2), (3, 1))
FEATURES = (on_circle(0, 90, 180, 45), on_circle(20, 10, 60, 95, 0, 1, 181))
CIRCLE = QueryGallery("circle", "unseen", QUERY.records, GALLERY.records)
TEST = ListedTest(CIRCLE, QUERY, GALLERY)
# Query 1 at 0°: its own camera's image and the junk are out, so 9 (10°), match (20°), match (60°), then 2 (95°) and 3.
# Query 2 at 90°: match (95°) first. Query 3: its one match is under its own camera. Query 4: nobody in the gallery.


def test_metrics_equal_manual_computation() -> None:
    figures = row_of(TEST, FEATURES)
    assert figures["mAP"] == pytest.approx(100 * ((1 / 2 + 2 / 3) / 2 + 1) / 2)
    assert figures["mINP"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert (figures["rank1"], figures["rank5"], figures["rank10"]) == (50, 100, 100)
    assert (figures["num_valid"], figures["num_absent"], figures["num_filtered"]) == (2, 1, 1)
    rates = figures["open_set"]
    assert [rate["false_accept_rate"] for rate in rates] == pytest.approx([1, 0.1])
    # Strangers: query 1 without its people reaches cos 10°, query 2 cos 30°, query 3 cos 85°, query 4 cos 15°. None
    # of four may pass, so the threshold is above cos 10°; only query 2, at cos 5° and right, is found.
    for rate in rates:
        assert rate["threshold"] == pytest.approx(np.cos(np.radians(10)), abs=1e-6)
        assert rate["true_positive_rate"] == 50


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_index_gives_open_set_rates_and_its_cost(metric: str) -> None:
    test = TEST.by(metric)
    figures = row_of(test, FEATURES, FaissIndex("flat", depth=5))
    cost = figures.pop("index")
    exact = row_of(test, FEATURES)
    for rates, expected in zip(figures.pop("open_set"), exact.pop("open_set"), strict=True):
        assert rates == pytest.approx(expected, abs=1e-5)
    assert figures == exact
    assert (cost["name"], cost["depth"], cost["recall"]) == ("flat", 5, {"1": 100})
    assert cost.keys() == {"name", "depth", "recall", "queries_per_second", "megabytes", "build_seconds"}


def test_without_impostors_the_open_set_is_empty() -> None:
    alone = images((1, 2), (1, 3))
    test = ListedTest(QueryGallery("alone", "unseen", QUERY.records[:1], alone.records), images((1, 1)), alone)
    figures = row_of(test, (on_circle(0), on_circle(1, 2)))
    assert figures["mAP"] == 100 and figures["open_set"] == []


def test_rows_are_means_over_splits() -> None:
    """The second split leaves the 9 out, so query 1 is ranked perfectly there."""
    columns = (0, 2, 3, 6)
    splits = (((0, 1, 2, 3), tuple(range(7))), ((0,), columns))
    figures = row_of(replace(TEST, test=replace(CIRCLE, splits=splits)), FEATURES)
    first = ((1 / 2 + 2 / 3) / 2 + 1) / 2
    assert figures["mAP"] == pytest.approx(100 * (first + 1) / 2)
    assert figures["rank1"] == 75 and figures["num_valid"] == 3


def test_re_ranking_changes_metrics_but_not_counts() -> None:
    plain = row_of(TEST, FEATURES)
    figures = row_of(TEST, FEATURES, rerank=KReciprocal(k1=2, k2=1, weight=0.0))
    wanted = evaluate(
        *FEATURES, QUERY.pids, GALLERY.pids, QUERY.camids, GALLERY.camids, rerank=KReciprocal(k1=2, k2=1, weight=0.0)
    )
    assert figures["mAP"] == pytest.approx(100 * wanted.mAP) and figures["mAP"] != pytest.approx(plain["mAP"])
    assert (figures["num_valid"], figures["num_absent"], figures["num_filtered"]) == (2, 1, 1)
    assert figures["open_set"] == []


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_hardest_rankings_equal_manual_computation(metric: str) -> None:
    hard, easy = hardest_rankings(TEST.by(metric), FEATURES, count=5, depth=3)
    assert (hard.query, easy.query) == (0, 1)
    assert hard.ap == pytest.approx(100 * (1 / 2 + 2 / 3) / 2) and easy.ap == 100
    assert (hard.rows, hard.ranks, hard.first_match, hard.num_matches) == ([1, 0, 2], [1, 2, 3], 2, 2)
    assert easy.rows == [3, 2, 0] and easy.first_match == 1
    degrees = np.radians([10, 20, 60])
    assert hard.scores == pytest.approx(np.cos(degrees) if metric == "cosine" else 6 * np.sin(degrees / 2), abs=1e-6)


def test_first_match_is_listed_beyond_the_depth() -> None:
    (hard,) = hardest_rankings(TEST, FEATURES, count=1, depth=1)
    assert (hard.ranks, hard.rows) == ([1, 2], [1, 0])


def test_hardest_rows_refer_to_the_whole_gallery() -> None:
    test = replace(TEST, test=replace(CIRCLE, splits=(((1, 0), (6, 3, 2, 1)),)))
    hard, easy = hardest_rankings(test, FEATURES, count=5, depth=2)
    assert (hard.query, hard.rows, easy.query, easy.rows) == (0, [1, 2], 1, [3, 2])


def test_unknown_camera_filters_no_image() -> None:
    """Figures, open set and rankings are those of cameras that are all different."""
    unknown = images((1, -1), (2, -1), (3, -1), (4, -1)), images(
        (1, -1), (9, -1), (1, 3), (2, -1), (1, -1), (-1, -1), (3, -1)
    )  # fmt: skip
    apart = images((1, 11), (2, 12), (3, 13), (4, 14)), GALLERY
    results = []
    for query, gallery in (unknown, apart):
        test = ListedTest(QueryGallery("circle", "unseen", query.records, gallery.records), query, gallery)
        results.append(row_of(test, FEATURES))
        rankings = hardest_rankings(test, FEATURES, count=5)
        results[-1]["rankings"] = [each.rows for each in rankings]
    assert results[0] == results[1] and results[0]["num_filtered"] == 0


def test_test_set_without_any_match_is_an_error() -> None:
    circle = QueryGallery("circle", "unseen", QUERY.records[2:3], GALLERY.records)
    with pytest.raises(InputError, match="camera filter removed them all"):
        row_of(ListedTest(circle, images((3, 1)), GALLERY), (on_circle(180), FEATURES[1]))
