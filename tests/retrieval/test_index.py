"""Metrics of searches with a faiss index: equal to exact ranking if all images are returned, lower otherwise."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_inputs import cosines_and_labels, scores_and_labels

from lreid.errors import InputError
from lreid.retrieval import (
    Evaluation,
    FaissIndex,
    KReciprocal,
    Labels,
    cost_of,
    evaluate,
    evaluate_image_to_track,
    evaluate_single_shot,
    open_set_rates,
)
from lreid.retrieval import scores as module
from lreid.retrieval.faiss_library import new_index
from lreid.retrieval.ranking import evaluate_scores
from lreid.retrieval.scores import IndexScores, Scorer

faiss = pytest.importorskip("faiss")
FLAT = FaissIndex()


@st.composite
def problems(draw: Any) -> tuple[np.ndarray, ...]:
    """Features of a coarse grid or any, repeated, short, long, far from zero; few identities, some of them junk."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_queries, num_gallery, width = draw(st.integers(1, 8)), draw(st.integers(1, 40)), draw(st.integers(1, 9))
    counts = num_queries, num_gallery
    if draw(st.booleans()):
        features = [rng.integers(-2, 3, (count, width)).astype(np.float64) for count in counts]
    else:
        features = [rng.standard_normal((count, width)) for count in counts]
    if draw(st.booleans()):
        features[1] = features[1][rng.integers(0, num_gallery, num_gallery)]
    features[0][rng.random(num_queries) < 0.3] = features[1][0]
    scales = 10.0 ** rng.integers(-4, 5, num_gallery)[:, None] if draw(st.booleans()) else 1.0
    features[1] = features[1] * scales + draw(st.sampled_from([0.0, 0.0, 30.0]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    ids = rng.integers(-1, 4, num_queries), rng.integers(-1, 4, num_gallery)
    cams = rng.integers(0, 3, num_queries), rng.integers(0, 3, num_gallery)
    return *(each.astype(dtype) for each in features), *ids, *cams


def figures(call: Any) -> Any:
    """What a call returns, as plain values; or what it refuses."""
    try:
        result = call()
    except InputError as error:
        return str(error)
    if isinstance(result, Evaluation):
        return {name: np.asarray(value).tobytes() for name, value in vars(result).items()}
    return result


@pytest.mark.fuzz
@settings(max_examples=150, deadline=None)
@given(
    problem=problems(),
    metric=st.sampled_from(["cosine", "euclidean"]),
    camera_filter=st.booleans(),
    ap=st.sampled_from(["rectangular", "trapezoidal"]),
    pairs=st.sampled_from([1, 50, 2**22]),
)
def test_flat_index_gives_the_exact_metrics_bit_for_bit(
    problem: tuple[np.ndarray, ...], metric: Any, camera_filter: bool, ap: Any, pairs: int
) -> None:
    """Images, tracks, single shots and the open set; with ties, junk, equal rows, and vectors far from zero."""
    _, gallery, _, gallery_ids, _, gallery_cams = problem
    how: dict[str, Any] = {"metric": metric, "camera_filter": camera_filter}
    options: dict[str, Any] = {"ap": ap, "max_rank": 5}
    tracks = np.unique(np.stack([gallery_ids, gallery_cams]), axis=1, return_inverse=True)[1].reshape(-1)
    calls = (
        lambda **more: evaluate(*problem, **how, **options, **more),
        lambda **more: evaluate_image_to_track(*scores_and_labels(*problem, **how, **more), tracks, **options),
        lambda **more: evaluate_single_shot(*scores_and_labels(*problem, **how, **more), repeats=3, **options),
        lambda **more: open_set_rates(*cosines_and_labels(*problem, camera_filter=camera_filter, **more)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RESULTS_PER_CALL", pairs)
        for number, call in enumerate(calls):
            search = FLAT.over(gallery, "cosine" if number == 3 else metric)
            assert figures(lambda call=call, search=search: call(search=search)) == figures(call)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("width", [7, 512, 2048])
def test_scores_of_full_vectors_differ_only_by_rounding(metric: Any, width: int) -> None:
    rng = np.random.default_rng(width)
    gallery = torch.from_numpy(3 + rng.standard_normal((300, width), np.float32))
    queries = torch.from_numpy(3 + rng.standard_normal((40, width), np.float32))
    scorer = Scorer(queries, gallery, metric)
    exact = scorer(slice(0, 40)).clone()
    for index in ("flat", "hnsw", "IVF4,Flat;nprobe=4"):
        search = FaissIndex(index).over(gallery, metric)
        found, rows = search(scorer.queries)
        rows = torch.arange(300).expand(40, -1) if rows is None else rows  # all, in order
        assert rows.shape == (40, 300) and (rows >= 0).float().mean() > 0.8
        there, columns = rows >= 0, rows.clamp(min=0)
        apart = (found - exact.gather(1, columns)).abs() / scorer.sizes(scorer.queries, columns)
        assert 0 < apart[there].max() < module.ROUNDING / 4
        scores = IndexScores(search, scorer.queries, 300, scorer)(slice(0, 40))
        assert torch.equal(
            scores[scores > module.score_of_missing(scores.dtype)],
            exact[scores > module.score_of_missing(scores.dtype)],
        )


class ListedResults:
    """A search whose results are given: rows and scores of each query, whose feature is its number."""

    def __init__(self, *lists: list[tuple[int, float]]) -> None:
        self.lists, self.max_results = lists, max(map(len, lists))

    def __call__(self, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wanted = [self.lists[int(number)] for number in queries[:, 0]]
        padded = [line + [(-1, -3e38)] * (self.max_results - len(line)) for line in wanted]
        both = torch.tensor(padded, dtype=torch.float64)  # (B, k, 2)
        return both[..., 1], both[..., 0].long()


def test_missing_images_rank_last_and_missing_matches_after_them() -> None:
    """Of five images, the search returns two, one and none for the three queries."""
    search = ListedResults([(3, 0.9), (1, 0.5)], [(2, 0.7)], [])
    queries = torch.arange(3.0)[:, None]
    gallery_ids = np.array([1, 1, 2, 5, -1])
    result = evaluate_scores(
        IndexScores(search, queries, 5), Labels(np.array([1, 2, 1])), Labels(gallery_ids), max_rank=4
    )
    # Ranks from 1, without the junk: of images 1 and 0, behind image 3; of image 2; of 0 and 1, behind 2 and 3.
    np.testing.assert_allclose(result.ap, [(1 / 2 + 2 / 4) / 2, 1, (1 / 3 + 2 / 4) / 2])
    np.testing.assert_allclose(result.cmc, [1 / 3, 2 / 3, 1, 1])
    assert result.mINP == pytest.approx((2 / 4 + 1 + 2 / 4) / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_missing_match_ranks_after_all_images_in_every_precision(dtype: torch.dtype) -> None:
    scores = torch.full((1, 4), module.score_of_missing(dtype), dtype=dtype)
    scores[0, 0] = 1
    module.rank_missing_last(scores, np.array([0]), np.array([1]))
    assert (scores[0, 1] < scores[0, [0, 2, 3]]).all()


def test_only_rounding_errors_are_replaced_by_exact_scores() -> None:
    queries, gallery = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    scorer = Scorer(queries, gallery, "cosine")

    class Coded:
        max_results = 3

        def __call__(self, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.tensor([[0.61, 0.8000001, 0.599]]), torch.tensor([[0, 1, 2]])

    scores = IndexScores(Coded(), queries, 3, scorer)(slice(0, 1))
    np.testing.assert_array_equal(scores, np.array([[0.61, scorer(slice(0, 1))[0, 1], 0.599]], np.float32))


def clusters(count: int, seed: int, width: int = 16) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(0).standard_normal((60, width))
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 60, count)
    return (centres[ids] + 0.9 * rng.standard_normal((count, width))).astype(np.float32), ids


@pytest.mark.parametrize("index", ["hnsw", "IVF32,Flat;nprobe=2", "IVF8,PQ4x6;nprobe=8", "SQ4"])
def test_metrics_of_an_index_equal_a_loop_over_its_results(index: str) -> None:
    (queries, query_ids), (gallery, gallery_ids) = clusters(50, 1), clusters(2000, 2)
    kind = FaissIndex(index, depth=150)
    results = [
        evaluate(queries, gallery, query_ids, gallery_ids, camera_filter=False, search=kind.over(gallery, "cosine"))
        for _ in range(2)
    ]
    np.testing.assert_array_equal(results[0].ap, results[1].ap)
    units = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    plain = new_index(index, units)
    faiss.omp_set_num_threads(1)
    plain.add(units)
    _, rows = plain.search(queries / np.linalg.norm(queries, axis=1, keepdims=True), 150)
    expected = []
    for found, pid in zip(rows, query_ids, strict=True):
        ranks = [rank for rank, row in enumerate(found, start=1) if row >= 0 and gallery_ids[row] == pid]
        total = int((gallery_ids == pid).sum())
        ranks += range(2001 - (total - len(ranks)), 2001)
        expected.append(np.mean([place / rank for place, rank in enumerate(sorted(ranks), start=1)]))
    # Equal codes are in the order of the gallery here, and in any order there.
    np.testing.assert_allclose(results[0].ap, expected, atol=0.02)
    assert results[0].mAP == pytest.approx(np.mean(expected), abs=1e-3)
    exact = evaluate(queries, gallery, query_ids, gallery_ids, camera_filter=False)
    assert results[0].mAP < exact.mAP


def test_recall_of_the_cost_equals_a_loop() -> None:
    (queries, _), (gallery, _) = clusters(30, 1), clusters(500, 2)
    search = FaissIndex("IVF16,Flat", depth=20).over(gallery, "euclidean")
    scorer = Scorer(torch.from_numpy(queries), torch.from_numpy(gallery), "euclidean")
    cost = cost_of(search, scorer)
    distances = np.linalg.norm(queries[:, None].astype(np.float64) - gallery[None], axis=2)
    truth, found = np.argsort(distances, axis=1), search.nearest(torch.from_numpy(queries))
    expected = {
        k: np.mean([len(set(a[:k]) & set(b[:k])) / k for a, b in zip(truth, found, strict=True)]) for k in (1, 10)
    }
    assert cost.recall == pytest.approx(expected) and 0.3 < cost.recall[10] < 1
    assert cost.queries_per_second > 0 and cost.build_seconds > 0
    assert cost.megabytes == len(faiss.serialize_index(search.index)) / 2**20
    flat = cost_of(FLAT.over(gallery, "euclidean"), scorer)
    assert flat.recall == {1: 1, 10: 1, 100: 1}


def test_large_means_and_small_features_lose_no_precision() -> None:
    rng = np.random.default_rng(3)
    base = rng.standard_normal((200, 8))
    ids = rng.integers(0, 9, 200)
    for features in (1e4 + base, 1e-30 * base, 1e60 * base, 1e9 + base):
        problem = features[:50], features[50:], ids[:50], ids[50:]
        for metric in ("cosine", "euclidean"):
            exact = evaluate(*problem, camera_filter=False, metric=metric)
            found = evaluate(*problem, camera_filter=False, metric=metric, search=FLAT.over(features[50:], metric))
            np.testing.assert_array_equal(found.ap, exact.ap)


@pytest.mark.parametrize(
    ("index", "count", "fault"),
    [
        ("falt", 100, "index is 'falt'"),
        ("IVF200,Flat", 100, "training points (100)"),
        ("IVF4,PQ3", 1000, "multiple"),
        ("IVF4,Flat;nprobe", 100, "nprobe"),
        ("IVF4,Flat;nprob=3", 100, "nprob"),
        ("IDMap,Flat", 100, "index is 'IDMap,Flat'"),
        ("ivfpq", 100, "9984 images"),
        ("", 100, "index is ''"),
    ],
)
def test_invalid_index_is_refused_before_features_are_extracted(index: str, count: int, fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        FaissIndex(index).check(count, 8)


def test_invalid_depth_search_and_features_are_refused() -> None:
    with pytest.raises(InputError, match="depth is 0"):
        FaissIndex(depth=0)
    (queries, query_ids), (gallery, gallery_ids) = clusters(5, 1), clusters(50, 2)
    with pytest.raises(InputError, match="re-ranking"):
        search = FLAT.over(gallery, "cosine")
        evaluate(queries, gallery, query_ids, gallery_ids, camera_filter=False, rerank=KReciprocal(), search=search)
    gallery[3] = np.nan
    for metric in ("cosine", "euclidean"):
        with pytest.raises(InputError, match="rows hold NaN"):
            FLAT.over(gallery, metric)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_float64_features_beyond_float32_are_searched_or_refused(kind):
    rng = np.random.default_rng(0)
    queries, gallery = rng.standard_normal((10, 8)), rng.standard_normal((60, 8))
    labels = rng.integers(5, size=10), rng.integers(5, size=60)
    for metric in ("cosine", "euclidean"):
        wanted = evaluate(queries, gallery, *labels, camera_filter=False, metric=metric).ap
        for scale in (1e-100, 1e-46, 1e60, 1e100):
            search = FaissIndex(kind).over(scale * gallery, metric)
            both = scale * queries, scale * gallery
            found = evaluate(*both, *labels, camera_filter=False, metric=metric, search=search).ap
            np.testing.assert_allclose(found, wanted)
    with pytest.raises(InputError, match="query features"):
        search = FaissIndex(kind).over(gallery, "euclidean")
        evaluate(1e60 * queries, gallery, *labels, camera_filter=False, metric="euclidean", search=search)
