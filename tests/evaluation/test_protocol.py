"""Test sets that ask for a protocol of their own, as their benchmarks define it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from protocol_inputs import scores_and_labels

from lreid.data.images import Images
from lreid.data.records import DataSet, QueryGallery
from lreid.data.synthetic import load_synthetic
from lreid.data.tasks import query_gallery
from lreid.evaluation import Evaluator, load_tests
from lreid.evaluation.test_report import row_of
from lreid.models import Embedder
from lreid.retrieval import Evaluation, average_evaluations, evaluate, evaluate_image_to_track, evaluate_single_shot
from lreid.retrieval.rerank import KReciprocal


@pytest.fixture(scope="module")
def drawn() -> DataSet:
    """Drawn people; the images of one person by one camera are a track."""
    data_set = load_synthetic(
        "campus", train_identities=1, test_identities=8, images_per_identity=7, distractors=6, seed=0
    )
    seen = sorted({record[1:] for record in data_set.gallery})
    return replace(data_set, tracks=tuple(seen.index(record[1:]) for record in data_set.gallery))


@pytest.fixture(scope="module")
def model() -> Embedder:
    torch.manual_seed(0)
    return Embedder("small", height=32, width=16)


def both_ways(test: QueryGallery, model: Embedder, **options: object) -> tuple[dict, object, tuple]:
    """Figures of the tool that tests, those of the training, and the first six arguments that give them."""
    evaluator = Evaluator(load_tests([test], height=32, width=16, skip_bad=True))
    (loaded,) = evaluator.tests
    images = loaded.query, loaded.gallery
    features = evaluator.features(model, loaded)
    (figures,) = evaluator.evaluate(model)
    labels = [each.pids for each in images] + [each.camids for each in images]
    return row_of(loaded, features, **options), figures, (*features, *labels)


def assert_same(scored: dict, figures: object, wanted: Evaluation) -> None:
    for found in (scored["mAP"], figures.metrics["mAP"]):
        assert found == pytest.approx(100 * wanted.mAP)
    for k in (1, 5, 10):
        assert scored[f"rank{k}"] == figures.metrics[f"rank{k}"] == pytest.approx(100 * wanted.cmc[k - 1])


def test_tracks_are_ranked(drawn: DataSet, model: Embedder) -> None:
    test = query_gallery([drawn], "unseen")
    assert len(set(test.tracks)) < len(test.tracks) == len(test.gallery)
    scored, figures, arguments = both_ways(test, model)
    assert_same(scored, figures, evaluate_image_to_track(*scores_and_labels(*arguments), test.tracks))
    assert scored["mAP"] != pytest.approx(100 * evaluate(*arguments).mAP)


def test_tracks_leave_out_unreadable_images(drawn: DataSet, model: Embedder) -> None:
    gallery = (drawn.gallery[0]._replace(path="gone.png"), *drawn.gallery[1:])
    scored, figures, arguments = both_ways(query_gallery([replace(drawn, gallery=gallery)], "unseen"), model)
    assert_same(scored, figures, evaluate_image_to_track(*scores_and_labels(*arguments), drawn.tracks[1:]))


def test_single_shot_galleries_are_drawn(drawn: DataSet, model: Embedder) -> None:
    test = query_gallery([replace(drawn, tracks=(), single_shot=True)], "unseen")
    scored, figures, arguments = both_ways(test, model)
    wanted = evaluate_single_shot(*scores_and_labels(*arguments))
    assert_same(scored, figures, wanted)
    assert wanted.cmc[0] != evaluate(*arguments).cmc[0]


def test_single_shot_splits_are_averaged(drawn: DataSet, model: Embedder) -> None:
    half = len(drawn.query) // 2
    versions = [
        replace(drawn, query=query, tracks=(), single_shot=True) for query in (drawn.query[:half], drawn.query[half:])
    ]
    test = query_gallery(versions, "unseen")
    assert test.single_shot and len(test.splits) == 2
    scored, figures, _ = both_ways(test, model)
    results = []
    for version in versions:
        images = [Images(records, height=32, width=16) for records in (version.query, version.gallery)]
        labels = [each.pids for each in images] + [each.camids for each in images]
        results.append(evaluate_single_shot(*scores_and_labels(*(model.extract(each) for each in images), *labels)))
    assert_same(scored, figures, average_evaluations(results))


@pytest.mark.parametrize("single_shot", [False, True])
def test_re_ranking_works_with_every_protocol(drawn: DataSet, model: Embedder, single_shot: bool) -> None:
    test = replace(query_gallery([drawn], "unseen"), single_shot=single_shot)
    test = replace(test, tracks=()) if single_shot else test
    plain, _, _ = both_ways(test, model)
    scored, _, _ = both_ways(test, model, rerank=KReciprocal(k1=4, k2=2))
    assert np.isfinite(scored["mAP"]) and scored["mAP"] != plain["mAP"]
