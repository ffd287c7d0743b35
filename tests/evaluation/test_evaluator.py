"""Figures of a model on test sets, against those of its features."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lreid.data.records import QueryGallery
from lreid.data.synthetic import load_synthetic
from lreid.errors import InputError
from lreid.evaluation import Evaluator, Rules, load_tests
from lreid.models import Embedder
from lreid.retrieval import FaissIndex, evaluate


@pytest.fixture(scope="module")
def test_set() -> QueryGallery:
    drawn = load_synthetic(
        "campus", train_identities=1, test_identities=8, images_per_identity=5, distractors=6, seed=0
    )
    return QueryGallery("campus", "seen", drawn.query, drawn.gallery, 0)


def evaluator(test_set: QueryGallery, *, skip_bad: bool = False, **options: Any) -> Evaluator:
    index = options.pop("index", None)
    tests = load_tests([test_set], Rules(**options), height=32, width=16, skip_bad=skip_bad)
    return Evaluator(tests, batch_size=16, index=index)


@pytest.mark.parametrize("camera_filter", [True, False])
def test_metrics_equal_the_exact_ranking(test_set: QueryGallery, camera_filter: bool) -> None:
    torch.manual_seed(0)
    model, both = Embedder("small", height=32, width=16), (test_set.query, test_set.gallery)
    (figures,) = evaluator(test_set, camera_filter=camera_filter).evaluate(model)
    features = [model.extract([record.path for record in records]) for records in both]
    labels = [np.array([record[column] for record in records]) for column in (1, 2) for records in both]
    wanted = evaluate(*features, *labels, camera_filter=camera_filter)
    assert figures.num_valid == wanted.num_valid == len(test_set.query)
    assert figures.metrics["mAP"] == pytest.approx(100 * wanted.mAP)
    for rank in (1, 5, 10):
        assert figures.metrics[f"rank{rank}"] == pytest.approx(100 * wanted.cmc[rank - 1])
    precisions = {pid: 100 * wanted.ap[labels[0] == pid].mean() for pid in np.unique(labels[0])}
    assert figures.identity_ap == pytest.approx(precisions) and list(figures.identity_ap) == sorted(precisions)


def test_skipped_images_are_listed(test_set: QueryGallery) -> None:
    gone = test_set.gallery[0]._replace(path="gone.png")
    with_gap = QueryGallery("campus", "seen", test_set.query, (gone, *test_set.gallery[1:]), 0)
    assert evaluator(with_gap, skip_bad=True).skipped == ["gone.png"]


def test_splits_are_averaged(test_set: QueryGallery) -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    choices = [((0, 2, 3), tuple(range(len(test_set.gallery)))), ((1, 3), tuple(range(0, len(test_set.gallery), 2)))]
    singles = [
        QueryGallery(
            "campus", "unseen", tuple(test_set.query[i] for i in query), tuple(test_set.gallery[i] for i in gallery)
        )
        for query, gallery in choices
    ]
    first, second = (evaluator(single).evaluate(model)[0] for single in singles)
    (both,) = evaluator(replace(test_set, splits=tuple(choices))).evaluate(model)
    for name, value in both.metrics.items():
        assert value == pytest.approx((first.metrics[name] + second.metrics[name]) / 2)
    assert (first.num_valid, second.num_valid, both.num_valid) == (3, 2, 4)  # query 3 is in both
    for pid in first.identity_ap.keys() - second.identity_ap.keys():
        assert both.identity_ap[pid] == pytest.approx(first.identity_ap[pid])
    assert both.identity_ap.keys() == first.identity_ap.keys() | second.identity_ap.keys()


def test_splits_leave_out_unreadable_images(test_set: QueryGallery) -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    everything = (tuple(range(len(test_set.query))), tuple(range(len(test_set.gallery))))
    gone = test_set.gallery[0]._replace(path="gone.png")
    broken = replace(test_set, gallery=(gone, *test_set.gallery[1:]))
    figures = evaluator(broken, skip_bad=True).evaluate(model)
    assert evaluator(replace(broken, splits=(everything,)), skip_bad=True).evaluate(model) == figures


def test_test_set_without_matches_is_refused(test_set: QueryGallery) -> None:
    same = replace(test_set, gallery=tuple(r._replace(camid=0) for r in test_set.gallery))
    same = replace(same, query=tuple(r._replace(camid=0) for r in test_set.query))
    with pytest.raises(InputError, match="campus: .*camera_filter=False"):
        evaluator(same)
    evaluator(same, camera_filter=False)
    nowhere = tuple(r._replace(camid=-1) for r in test_set.gallery)  # by cameras that are not known
    evaluator(replace(same, gallery=nowhere, query=tuple(r._replace(camid=-1) for r in test_set.query)))
    others = replace(test_set, query=tuple(r._replace(pid=10**6) for r in test_set.query))
    for camera_filter in (True, False):
        with pytest.raises(InputError, match="campus: none of the queries"):
            evaluator(others, camera_filter=camera_filter)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_flat_index_gives_the_metrics_of_exact_search(test_set: QueryGallery, metric: str) -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    exact = evaluator(test_set, metric=metric).evaluate(model)
    assert evaluator(test_set, metric=metric, index=FaissIndex()).evaluate(model) == exact
    coarse = FaissIndex("IVF4,PQ2x2", depth=5)
    assert evaluator(test_set, metric=metric, index=coarse).evaluate(model) != exact
