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


def problem(seed):
    """Features of queries and gallery, their identities and their cameras; one identity is in the queries only."""
    rng = np.random.default_rng(seed)
    ids, cams = (rng.integers(9, size=60), rng.integers(-1, 8, size=40)), (rng.integers(2, size=n) for n in (60, 40))
    centers = rng.standard_normal((9, 6))
    return *(centers[each] + 0.6 * rng.standard_normal((len(each), 6)) for each in ids), *ids, *cams


@pytest.mark.parametrize("camera_filter", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_rates_equal_nested_loops(camera_filter, seed, monkeypatch):
    monkeypatch.setattr("lreid.retrieval.scores.BLOCK_SCORES", 100)  # several blocks
    queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams = case = problem(seed)
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
    for gallery_ids, fault in (([1, 1, 1], "impostors"), ([2, 3, 4], "none has one")):
        with pytest.raises(InputError, match=fault):
            open_set_rates(*cosines_and_labels(features, features, [1, 1, 1], gallery_ids, None, None))
    for rate in (1, -0.1, float("nan")):
        with pytest.raises(InputError, match=f"rate is {rate!r}"):
            threshold_for(np.ones(3), rate)
    rate = np.nextafter(1, 0)  # accepts all impostors but the worst
    assert 0.1 < threshold_for(np.array([0.3, 0.1, 0.2]), rate) < 0.2


@pytest.mark.parametrize("camera_filter", [True, False])
def test_pair_scores_equal_nested_loops(camera_filter, monkeypatch):
    monkeypatch.setattr("lreid.retrieval.scores.BLOCK_SCORES", 100)  # several blocks
    queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams = case = problem(0)
    same, other = [], []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        for image, name, place in zip(gallery, gallery_ids, gallery_cams, strict=True):
            score = query @ image / np.linalg.norm(query) / np.linalg.norm(image)
            if name not in (-1, pid):
                other.append(score)
            elif name == pid and not (camera_filter and cam == place):
                same.append(score)
    found = pair_scores(*cosines_and_labels(*case, camera_filter=camera_filter))
    for scores, wanted in zip(found, (same, other), strict=True):
        assert np.sort(scores) == pytest.approx(np.sort(wanted), abs=1e-5)
