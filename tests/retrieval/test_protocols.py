from itertools import product

import nested_loops
import numpy as np
import pytest
from protocol_inputs import cosines_and_labels, scores_and_labels

from lreid.errors import InputError
from lreid.retrieval import (
    KReciprocal,
    average_evaluations,
    camera_pairs,
    evaluate,
    evaluate_image_to_track,
    evaluate_single_shot,
    open_set_rates,
)


def problem(seed, num_queries=8, num_gallery=10, num_ids=4):
    """Integer vectors, so that ties are exact; identities from -1, two cameras."""
    rng = np.random.default_rng(seed)
    return (
        rng.integers(-1, 2, size=(num_queries, 4)).astype(float),
        rng.integers(-1, 2, size=(num_gallery, 4)).astype(float),
        rng.integers(num_ids, size=num_queries),
        rng.integers(-1, num_ids, size=num_gallery),
        rng.integers(2, size=num_queries),
        rng.integers(2, size=num_gallery),
    )


@pytest.mark.parametrize("ap", ["rectangular", "trapezoidal"])
@pytest.mark.parametrize("metric", ["cosine", "sqeuclidean"])
@pytest.mark.parametrize("seed", range(5))
def test_image_to_track_equals_a_ranking_of_best_images(ap, metric, seed):
    queries, gallery, query_ids, _, query_cams, _ = problem(seed, num_gallery=24)
    rng = np.random.default_rng(seed)
    tracks = rng.integers(10, 18, size=24)
    track_ids, track_cams = rng.integers(-1, 4, size=18), rng.integers(2, size=18)
    case = queries, gallery, query_ids, track_ids[tracks], query_cams, track_cams[tracks]
    result = evaluate_image_to_track(*scores_and_labels(*case, metric=metric), tracks, ap=ap, block=3)
    numbers = sorted(set(tracks.tolist()))
    precisions = []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        best = {
            number: min(nested_loops.distance(query, image, metric) for image in gallery[tracks == number])
            for number in numbers
        }
        order = [n for n in sorted(numbers, key=best.get) if track_ids[n] != -1]
        order = [n for n in order if not (track_ids[n] == pid and track_cams[n] == cam)]
        ranks = [rank for rank, number in enumerate(order) if track_ids[number] == pid]
        area = 0.0
        for found, rank in enumerate(ranks):
            before = (found / rank if rank else 1.0) if ap == "trapezoidal" else (found + 1) / (rank + 1)
            area += ((found + 1) / (rank + 1) + before) / 2 / len(ranks)
        precisions.append(area if ranks else np.nan)
    np.testing.assert_allclose(result.ap, precisions, rtol=1e-12)


@pytest.mark.parametrize("rerank", [None, KReciprocal(k1=3, k2=2)])
def test_tracks_of_one_image_equal_images(rerank):
    case = problem(1, num_queries=20, num_gallery=30)
    tracks = evaluate_image_to_track(*scores_and_labels(*case, rerank=rerank), np.arange(30))
    np.testing.assert_allclose(tracks.ap, evaluate(*case, rerank=rerank).ap, rtol=1e-12)


@pytest.mark.parametrize("rerank", [None, KReciprocal(k1=3, k2=2)])
def test_single_shot_with_one_image_per_identity_equals_the_whole_gallery(rerank):
    queries, gallery, query_ids, _, query_cams, gallery_cams = problem(1, num_queries=20, num_gallery=30)
    case = queries, gallery, query_ids, np.arange(30), query_cams, gallery_cams
    shots = evaluate_single_shot(*scores_and_labels(*case, rerank=rerank), repeats=2)
    np.testing.assert_allclose(shots.cmc, evaluate(*case, rerank=rerank).cmc)


def test_track_with_several_identities_or_cameras_is_refused():
    features, ids = np.eye(3), [0, 1, 2]
    for gallery_ids, cams, several in ((ids, [0, 0, 0], "identities"), ([0, 1, 1], [0, 0, 1], "cameras")):
        with pytest.raises(InputError, match=f"track 7: .*{several}"):
            evaluate_image_to_track(*scores_and_labels(features, features, ids, gallery_ids, ids, cams), [5, 7, 7])


@pytest.mark.parametrize("camera_filter", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_single_shot_approaches_the_mean_over_all_draws(camera_filter, seed):
    queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams = case = problem(seed)
    curves = []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        hidden = camera_filter & (gallery_ids == pid) & (gallery_cams == cam)
        groups = [
            np.flatnonzero((gallery_ids == identity) & ~hidden) for identity in np.unique(gallery_ids) if identity >= 0
        ]
        draws = list(product(*(group for group in groups if len(group))))
        curve = np.zeros(4)
        for draw in draws:
            order = sorted(sorted(draw), key=lambda image: nested_loops.distance(query, gallery[image], "cosine"))
            ranks = [rank for rank, image in enumerate(order) if gallery_ids[image] == pid]
            if ranks:
                curve[ranks[0] :] += 1 / len(draws)
        if ((gallery_ids == pid) & ~hidden).any():
            curves.append(curve)
    result = evaluate_single_shot(
        *scores_and_labels(*case, camera_filter=camera_filter), repeats=3000, seed=seed, max_rank=4, block=3
    )
    np.testing.assert_allclose(result.cmc, np.mean(curves, axis=0), atol=0.02)
    whole = evaluate(*case, camera_filter=camera_filter)
    assert (result.mAP, result.num_valid) == (whole.mAP, whole.num_valid)


def test_single_shot_draws_depend_on_the_seed():
    case = problem(0, num_queries=40, num_gallery=100, num_ids=20)
    curves = [evaluate_single_shot(*scores_and_labels(*case), repeats=2, seed=seed).cmc for seed in (0, 0, 1)]
    np.testing.assert_array_equal(curves[0], curves[1])
    assert (curves[0] != curves[2]).any()
    with pytest.raises(InputError, match="repeats = 0"):
        evaluate_single_shot(*scores_and_labels(*case), repeats=0)


def test_average_weights_all_splits_equally():
    first, second = (evaluate(*problem(seed, num_queries=5 + seed)) for seed in (0, 1))
    mean = average_evaluations([first, second])
    assert mean.mAP == pytest.approx((first.mAP + second.mAP) / 2)
    assert mean.mINP == pytest.approx((first.mINP + second.mINP) / 2)
    np.testing.assert_allclose(mean.cmc, (first.cmc + second.cmc) / 2)
    np.testing.assert_array_equal(mean.ap, [*first.ap, *second.ap])
    assert mean.num_valid == first.num_valid + second.num_valid
    with pytest.raises(InputError, match="at least one"):
        average_evaluations([])


def test_text_labels_give_the_same_metrics_as_numbers():
    case = problem(0, num_queries=12, num_gallery=60, num_ids=6)
    named = [*case[:2], *([f"id {number}" if number != -1 else "-1" for number in labels] for labels in case[2:])]
    tracks = np.unique(np.stack([case[3], case[5]]), axis=1, return_inverse=True)[1].ravel()
    one = evaluate_image_to_track(*scores_and_labels(*case), tracks)
    other = evaluate_image_to_track(*scores_and_labels(*named), [f"track {number:03d}" for number in tracks])
    np.testing.assert_array_equal(one.ap, other.ap)
    one, other = evaluate_single_shot(*scores_and_labels(*case)), evaluate_single_shot(*scores_and_labels(*named))
    np.testing.assert_array_equal(one.ap, other.ap)
    assert len(one.cmc) == len(other.cmc)  # the draws follow the order of the names
    assert open_set_rates(*cosines_and_labels(*case)) == open_set_rates(*cosines_and_labels(*named))


@pytest.mark.parametrize("splits", [1, 2])
def test_a_pair_of_cameras_is_a_ranking_without_matches_in_other_cameras(splits):
    rng = np.random.default_rng(splits)
    evaluations, expected = [], {}
    for _ in range(splits):
        case = (
            rng.normal(size=(20, 4)),
            rng.normal(size=(60, 4)),
            rng.integers(5, size=20),
            rng.integers(-1, 6, size=60),
        )
        cameras = rng.integers(3, size=20), rng.integers(3, size=60)
        evaluations.append(evaluate(*case, *cameras, block=7))
        for row, camera in product(range(20), range(3)):
            here = slice(row, row + 1)
            others = (case[3] != case[2][row]) | (cameras[1] == camera)
            if camera != cameras[0][row] and (case[3][others] == case[2][row]).any():
                one = case[0][here], case[1][others], case[2][here], case[3][others]
                figures = evaluate(*one, cameras[0][here], cameras[1][others])
                pair = f"{cameras[0][row]} → {camera}"
                expected.setdefault(pair, []).append((figures.mAP, figures.cmc[0]))
    both = average_evaluations(evaluations)
    for place in (0, 1):
        means = {pair: np.mean(each, axis=0)[place] for pair, each in expected.items() if len(each) >= 5 * splits}
        assert camera_pairs(both, rank1=place == 1, fewest=5 * splits) == pytest.approx(means)
    assert len(means) > 3 and camera_pairs(both, fewest=1000) == {}
    for found, ap in zip(both.ranks, both.ap, strict=True):
        assert np.isnan(ap) if not len(found) else ap == pytest.approx(np.mean(np.arange(1, len(found) + 1) / found))
