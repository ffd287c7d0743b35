import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_inputs import cosines_and_labels

from lreid.errors import InputError
from lreid.retrieval import open_set_rates
from lreid.retrieval.protocols import pair_scores, threshold_for


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.75]), min_size=1, max_size=40),
    st.sampled_from([0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.99]),
)
def test_threshold_is_the_lowest_within_the_rate(scores, rate):
    scores = np.array(scores, dtype=np.float32)
    threshold = threshold_for(scores, rate)
    assert (scores >= threshold).mean() <= rate + 1e-9
    lower = np.nextafter(np.float32(threshold), np.float32(-np.inf))
    assert (scores >= lower).mean() > rate


@pytest.mark.parametrize("camera_filter", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_rates_equal_nested_loops(camera_filter, seed, monkeypatch):
    monkeypatch.setattr("lreid.retrieval.scores.BLOCK_SCORES", 100)  # several blocks
    rng = np.random.default_rng(seed)
    query_ids, gallery_ids = rng.integers(9, size=60), rng.integers(-1, 8, size=40)
    query_cams, gallery_cams = rng.integers(2, size=60), rng.integers(2, size=40)
    centers = rng.standard_normal((9, 6))
    queries = centers[query_ids] + 0.6 * rng.standard_normal((60, 6))
    gallery = centers[gallery_ids] + 0.6 * rng.standard_normal((40, 6))
    own, others = [], []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        best = {True: -2.0, False: -2.0}
        for image, other, place in zip(gallery, gallery_ids, gallery_cams, strict=True):
            if other == -1 or (camera_filter and other == pid and place == cam):
                continue
            score = query @ image / np.linalg.norm(query) / np.linalg.norm(image)
            best[other == pid] = max(best[other == pid], score)
        own.append(best[True])
        others.append(best[False])
    case = queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams
    rates = open_set_rates(*cosines_and_labels(*case, camera_filter=camera_filter), false_accept_rates=(0.05, 0.2))
    for rate, allowed in zip(rates, (3, 12), strict=True):  # of 60 impostors
        best_refused = sorted(others)[-allowed - 1]
        found = [mine > best_refused and mine > other for mine, other in zip(own, others, strict=True)]
        known = [mine > -2 for mine in own]
        assert rate.true_positive_rate == pytest.approx(sum(found) / sum(known))
        assert rate.threshold == pytest.approx(best_refused, abs=1e-5)
        assert rate.false_accept_rate == allowed / 60
    assert 0 < rates[0].true_positive_rate < 1


def test_invalid_input_is_named():
    features = np.eye(3)
    with pytest.raises(InputError, match="needs impostors"):
        open_set_rates(*cosines_and_labels(features, features, [1, 1, 1], [1, 1, 1], None, None))
    with pytest.raises(InputError, match="none has one"):
        open_set_rates(*cosines_and_labels(features, features, [1, 1, 1], [2, 3, 4], None, None))
    for rate in (1, -0.1, float("nan"), None, "0.1"):
        with pytest.raises(InputError, match=f"rate is {rate!r}"):
            threshold_for(np.ones(3), rate)


@pytest.mark.parametrize("camera_filter", [True, False])
def test_pair_scores_equal_nested_loops(camera_filter, monkeypatch):
    monkeypatch.setattr("lreid.retrieval.scores.BLOCK_SCORES", 100)  # several blocks
    rng = np.random.default_rng(0)
    query_ids, gallery_ids = rng.integers(5, size=30), rng.integers(-1, 5, size=20)
    query_cams, gallery_cams = rng.integers(2, size=30), rng.integers(2, size=20)
    queries, gallery = rng.standard_normal((30, 4)), rng.standard_normal((20, 4))
    same, other = [], []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        for image, name, place in zip(gallery, gallery_ids, gallery_cams, strict=True):
            score = query @ image / np.linalg.norm(query) / np.linalg.norm(image)
            if name not in (-1, pid):
                other.append(score)
            elif name == pid and not (camera_filter and cam == place):
                same.append(score)
    case = queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams
    found = pair_scores(*cosines_and_labels(*case, camera_filter=camera_filter))
    for scores, wanted in zip(found, (same, other), strict=True):
        assert np.sort(scores) == pytest.approx(np.sort(wanted), abs=1e-5)
