"""Metrics of searches with a faiss index: exact up to rounding if all images are returned, lower otherwise."""

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
    FaissIndex,
    KReciprocal,
    Labels,
    cosines_of,
    cost_of,
    evaluate,
    evaluate_image_to_track,
    evaluate_single_shot,
    open_set_rates,
)
from lreid.retrieval import scores as module
from lreid.retrieval.arrays import cancels
from lreid.retrieval.faiss_library import new_index
from lreid.retrieval.ranking import evaluate_scores
from lreid.retrieval.scores import IndexScores, Scorer

faiss = pytest.importorskip("faiss")
FLAT = FaissIndex()


@st.composite
def problems(draw: Any, *, whole: bool = False) -> tuple[np.ndarray, ...]:
    """Features of a coarse grid or any, repeated, short, long, far from zero; few identities, some of them junk."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_queries, num_gallery, width = draw(st.integers(1, 8)), draw(st.integers(1, 40)), draw(st.integers(1, 9))
    counts = num_queries, num_gallery
    if whole or draw(st.booleans()):
        features = [rng.integers(-2, 3, (count, width)).astype(np.float64) for count in counts]
    else:
        features = [rng.standard_normal((count, width)) for count in counts]
    if draw(st.booleans()):
        features[1] = features[1][rng.integers(0, num_gallery, num_gallery)]
    features[0][rng.random(num_queries) < 0.3] = features[1][0]
    features[0][rng.random(num_queries) < 0.1] = 0
    scales = 1.0 if whole or draw(st.booleans()) else 10.0 ** rng.integers(-4, 5, num_gallery)[:, None]
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
    parts = {name: value if isinstance(value, tuple) else (value,) for name, value in vars(result).items()}
    return {name: [np.asarray(part).tobytes() for part in value] for name, value in parts.items()}


@pytest.mark.fuzz
@settings(max_examples=100, deadline=None)
@given(problem=problems(whole=True), camera_filter=st.booleans(), ap=st.sampled_from(["rectangular", "trapezoidal"]))
def test_flat_index_gives_the_exact_metrics_of_whole_numbers(
    problem: tuple[np.ndarray, ...], camera_filter: bool, ap: Any
) -> None:
    """Float32 adds small whole numbers without rounding, so ties are the same; of images, tracks and single shots."""
    _, gallery, _, gallery_ids, _, gallery_cams = problem
    how: dict[str, Any] = {"metric": "euclidean", "camera_filter": camera_filter}
    options: dict[str, Any] = {"ap": ap, "max_rank": 5}
    tracks = np.unique(np.stack([gallery_ids, gallery_cams]), axis=1, return_inverse=True)[1].reshape(-1)
    search = FLAT.over(gallery, "euclidean")
    for call in (
        lambda **more: evaluate(*problem, **how, **options, **more),
        lambda **more: evaluate_image_to_track(*scores_and_labels(*problem, **how, **more), tracks, **options),
        lambda **more: evaluate_single_shot(*scores_and_labels(*problem, **how, **more), repeats=3, **options),
    ):
        assert figures(lambda call=call: call(search=search)) == figures(call)


def distances_and_errors(queries: np.ndarray, gallery: np.ndarray, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances ``(Q, G)`` in float64, and bounds of faiss's errors, see the docstring of FlatSearch.

    Rounding to float32 moves a vector by at most u times its length, and scaling it to unit length by (D / 2 + 3) u.
    """
    u, width, subtract = 2.0**-24, queries.shape[1], cancels(torch.from_numpy(gallery))
    queries, gallery = queries.astype(np.float64), gallery.astype(np.float64)
    lengths = [np.linalg.norm(each, axis=1) for each in (queries, gallery)]
    if metric == "cosine":
        cosines = queries @ gallery.T / np.maximum(np.outer(*lengths), np.finfo(np.float64).tiny)
        # (D + 2) u 2² of the sum, 2 (2 (D / 2 + 3) u) 2 of the moved vectors, 2 u of the cosine
        return 2 - 2 * cosines, np.full(cosines.shape, (8 * width + 40) * u)
    squares, both = ((queries[:, None] - gallery[None]) ** 2).sum(2), np.add.outer(*lengths)
    summed = (width + 3) * (squares if subtract else both**2)
    return squares, u * (summed + 2 * np.sqrt(squares) * both + u * both**2)


def precision_range(problem: tuple[np.ndarray, ...], metric: str) -> np.ndarray:
    """Lowest and highest AP ``(2, Q)``, given the errors; equal rows keep their order, as do all for a zero query."""
    queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams = problem
    ranges = np.full((2, len(queries)), np.nan)
    for query, (distances, errors) in enumerate(zip(*distances_and_errors(queries, gallery, metric), strict=True)):
        own = gallery_ids == query_ids[query]
        ranked = np.flatnonzero((gallery_ids != -1) & ~(own & (gallery_cams == query_cams[query])))
        matches, others = ranked[own[ranked]], ranked[~own[ranked]]
        ahead: list[list[int]] = [[], []]  # most and fewest other images ahead of each match
        for match in matches:
            repeated = (gallery[others] == gallery[match]).all(1) | (metric == "cosine" and not queries[query].any())
            gap, error = distances[others] - distances[match], errors[others] + errors[match]
            ahead[0].append(np.where(repeated, others < match, gap <= error).sum())
            ahead[1].append(np.where(repeated, others < match, gap < -error).sum())
        if len(matches) and query_ids[query] != -1:
            places = np.arange(1, len(matches) + 1)
            ranges[:, query] = [np.mean(places / (places + np.sort(counts))) for counts in ahead]
    return ranges


def assert_ranks_up_to_rounding(problem: tuple[np.ndarray, ...], metric: Any) -> None:
    """Compare the AP of a flat index with its range."""
    lowest, highest = precision_range(problem, metric)
    if not np.isnan(lowest).all():
        found = evaluate(*problem, metric=metric, search=FLAT.over(problem[1], metric)).ap
        np.testing.assert_array_equal(found, np.clip(found, lowest - 1e-12, highest + 1e-12))


@pytest.mark.fuzz
@settings(max_examples=150, deadline=None)
@given(problem=problems(), metric=st.sampled_from(["cosine", "euclidean"]))
def test_flat_index_ranks_by_distances_up_to_their_rounding(problem: tuple[np.ndarray, ...], metric: Any) -> None:
    assert_ranks_up_to_rounding(problem, metric)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_distances_of_faiss_rank_the_gallery(monkeypatch: pytest.MonkeyPatch, metric: Any) -> None:
    """Negative distances reverse all rankings, in open-set search as well."""
    (queries, query_ids), (gallery, gallery_ids) = clusters(30, 1), clusters(300, 2)
    problem = queries, gallery, query_ids, gallery_ids
    rank = {"metric": metric, "camera_filter": False, "search": FLAT.over(gallery, metric)}
    cosine = {"camera_filter": False, "search": FLAT.over(gallery, "cosine")}
    plain, (strict, _) = evaluate(*problem, **rank), open_set_rates(*cosines_and_labels(*problem, None, None, **cosine))
    faiss_distances = faiss.pairwise_distances
    monkeypatch.setattr(faiss, "pairwise_distances", lambda *pair: 4 - faiss_distances(*pair))
    reverse, (loose, _) = (
        evaluate(*problem, **rank),
        open_set_rates(*cosines_and_labels(*problem, None, None, **cosine)),
    )
    assert plain.mAP > 0.3 > 0.1 > reverse.mAP and strict.true_positive_rate > loose.true_positive_rate


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("width", "length", "spread"), [(7, 5, 1), (512, 20, 1e-1), (512, 30, 1e-4), (2048, 30, 1e-2)])
def test_scores_of_features_of_any_length_and_spread(metric: Any, width: int, length: float, spread: float) -> None:
    """Two groups of features, in opposite directions; the spread is relative to their length."""
    rng = np.random.default_rng(width)
    centre = length * np.repeat([[1], [-1]], 50, 0) / width**0.5
    queries, gallery = (
        (centre + spread * length / width**0.5 * rng.standard_normal((100, width))).astype(np.float32) for _ in range(2)
    )
    scores, rows = FLAT.over(gallery, metric)(torch.from_numpy(queries))
    assert torch.equal(rows, torch.arange(100).expand(100, -1))
    distances, errors = distances_and_errors(queries, gallery, metric)
    scale = 1 if metric == "cosine" else 2.0 ** np.frexp(np.abs(gallery).max())[1]
    found = 2 * (metric == "cosine") - 2 * scores.double().numpy() * scale**2
    assert (np.abs(found - distances) <= errors).all()
    exact = (
        cosines_of(queries, gallery)
        if metric == "cosine"
        else Scorer(*map(torch.from_numpy, (queries, gallery)), metric)
    )
    assert not torch.equal(scores, exact(slice(0, 100)))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("width", [7, 512, 2048])
def test_scores_of_full_vectors_differ_only_by_rounding(metric: Any, width: int) -> None:
    rng = np.random.default_rng(width)
    gallery = torch.from_numpy(3 + rng.standard_normal((300, width), np.float32))
    queries = torch.from_numpy(3 + rng.standard_normal((40, width), np.float32))
    scorer = Scorer(queries, gallery, metric)
    exact = scorer(slice(0, 40)).clone()
    for index in ("hnsw", "IVF4,Flat;nprobe=4"):
        search = FaissIndex(index).over(gallery, metric)
        found, rows = search(scorer.queries)
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

    complete = False

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
        complete, max_results = False, 3

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
    for features in (1e4 + base, 1e-30 * base, 1e60 * base):
        problem = features[:50], features[50:], ids[:50], ids[50:], np.zeros(50), np.ones(150)
        for metric in ("cosine", "euclidean"):
            assert_ranks_up_to_rounding(problem, metric)


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
