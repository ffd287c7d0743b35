import numpy as np
import pytest
from protocol_inputs import cosines_and_labels

from lreid.errors import InputError
from lreid.retrieval import evaluate, open_set_rates
from lreid.retrieval.growth import gallery_growth
from lreid.utils.identities import Labels


def case(seed=0, identities=24, strangers=30):
    """Features and labels of queries and gallery: identities from 1, strangers 0, junk -1, two cameras."""
    rng = np.random.default_rng(seed)
    query_ids = np.repeat(np.arange(1, identities + 1), 2)
    gallery_ids = rng.permutation([*np.repeat(np.arange(1, identities + 1), 3), *[0] * strangers, *[-1] * 5])
    centers = rng.standard_normal((identities + 1, 8))
    features = [centers[ids] + 0.8 * rng.standard_normal((len(ids), 8)) for ids in (query_ids, gallery_ids)]
    cams = [rng.integers(3, size=len(ids)) for ids in (query_ids, gallery_ids)]
    return tuple(features), Labels(query_ids, cams[0]), Labels(gallery_ids, cams[1])


def test_the_whole_gallery_has_the_figures_of_an_evaluation():
    (queries, gallery), asked, held = case()
    *_, whole = gallery_growth((queries, gallery), asked, held)
    labels = asked.ids, held.ids, asked.cameras, held.cameras
    exact = evaluate(queries, gallery, *labels)
    (rate,) = open_set_rates(*cosines_and_labels(queries, gallery, *labels), false_accept_rates=[0.01])
    assert whole.mAP == (exact.mAP, 0) and whole.rank1 == (exact.cmc[0], 0)
    assert whole.threshold == (rate.threshold, 0) and whole.true_positive_rate == (rate.true_positive_rate, 0)
    assert whole.identities == 24 and whole.images == (held.ids != -1).sum()


def test_a_small_gallery_equals_nested_loops():
    features, asked, held = case(identities=4, strangers=8)
    smallest, *_ = gallery_growth(features, asked, held, draws=1, false_accept_rate=0.1)
    assert smallest.identities == 2
    rng = np.random.default_rng(0)
    enrolled = rng.permutation(np.unique(asked.ids))[:2]
    strangers = rng.permutation(np.flatnonzero(held.ids == 0))[:4]
    part = sorted([*np.flatnonzero(np.isin(held.ids, enrolled)), *strangers])
    precisions, impostors = [], []
    for query, pid, cam in zip(features[0], asked.ids, asked.cameras, strict=True):
        ranked = []
        for column in part:
            image = features[1][column]
            cosine = query @ image / np.linalg.norm(query) / np.linalg.norm(image)
            if held.ids[column] != pid or held.cameras[column] != cam:
                ranked.append((-cosine, held.ids[column] == pid))
        impostors.append(max(-score for score, own in ranked if not own))
        right = [own for _, own in sorted(ranked)]
        if any(right):
            hits = [(sum(right[: rank + 1]) / (rank + 1)) for rank, own in enumerate(right) if own]
            precisions.append(sum(hits) / len(hits))
    assert smallest.images == len(part)
    assert smallest.mAP[0] == pytest.approx(np.mean(precisions))
    assert smallest.threshold[0] == pytest.approx(max(impostors), abs=1e-5)  # 8 impostors: none may pass at 10 %


def test_accuracy_falls_and_the_threshold_rises_with_the_gallery():
    features, asked, held = case(identities=64, strangers=200)
    points = gallery_growth(features, asked, held, draws=8)
    matched = points[-1].identities  # one of the 64 has images by a single camera
    assert matched == 63 and [point.identities for point in points] == [3, 7, 15, 31, 63]
    assert points == gallery_growth(features, asked, held, draws=8)
    for figure, sign in (("mAP", -1), ("rank1", -1), ("threshold", 1)):
        means = [sign * getattr(point, figure)[0] for point in points]
        assert means == sorted(means), figure


def test_a_gallery_of_one_identity_cannot_grow():
    features, asked, held = case(identities=1)
    with pytest.raises(InputError, match="gallery growth: 1 identities have a match"):
        gallery_growth(features, asked, held)
