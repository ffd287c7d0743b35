import warnings
from pathlib import Path
from unittest import mock

import nested_loops
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.retrieval import FaissIndex, KReciprocal, evaluate, matches
from lreid.retrieval.arrays import directions, unit_rows
from lreid.retrieval.matches import _count_by_comparing, count_ahead

GOLDEN = Path(__file__).parents[1] / "golden"


@st.composite
def problems(draw):
    """Few identities, two cameras and vectors from a coarse grid: ties, junk and hopeless queries abound."""
    num_queries, num_gallery = draw(st.integers(1, 6)), draw(st.integers(1, 14))

    def vectors(count):
        rows = st.lists(st.integers(-1, 1), min_size=4, max_size=4)
        return draw(st.lists(rows, min_size=count, max_size=count))

    def labels(count, values):
        return draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))

    return (
        vectors(num_queries),
        vectors(num_gallery),
        labels(num_queries, [1, 2, 3, -1]),
        labels(num_gallery, [-1, 0, 1, 1, 2, 7]),
        labels(num_queries, [0, 1, -1]),
        labels(num_gallery, [0, 1, -1]),
    )


@pytest.mark.fuzz
@settings(max_examples=200, deadline=None)
@given(
    problem=problems(),
    metric=st.sampled_from(["cosine", "euclidean", "sqeuclidean"]),
    ap=st.sampled_from(["rectangular", "trapezoidal"]),
    camera_filter=st.booleans(),
    block=st.sampled_from([None, 1, 2, 3, 100]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    container=st.sampled_from([np.asarray, torch.from_numpy]),
)
def test_metrics_equal_a_full_sort(problem, metric, ap, camera_filter, block, dtype, container):
    expected = nested_loops.evaluate(*problem, metric, ap, camera_filter)
    features = [container(np.array(vectors, dtype=dtype)) for vectors in problem[:2]]
    labels = [container(np.array(values)) for values in problem[2:]]
    options = {"metric": metric, "ap": ap, "camera_filter": camera_filter, "block": block, "max_rank": 5}
    valid = [result for result in expected if result[0] is not None]
    if not valid:
        with pytest.raises(InputError, match="no query has a match"):
            evaluate(*features, *labels, **options)
        return
    result = evaluate(*features, *labels, **options)
    divisor = len(valid) if ap == "rectangular" else len(expected)
    np.testing.assert_allclose(
        result.ap, [np.nan if result[0] is None else result[0] for result in expected], rtol=1e-12
    )
    assert result.mAP == pytest.approx(sum(r[0] for r in valid) / divisor, rel=1e-12)
    assert result.mINP == pytest.approx(sum(r[1] for r in valid) / divisor, rel=1e-12)
    cmc = [sum(first <= rank for _, _, first, _ in valid) / divisor for rank in range(5)]
    np.testing.assert_allclose(result.cmc, cmc, rtol=1e-12)
    assert result.num_valid == len(valid)
    reasons = [result[3] for result in expected]
    assert (result.num_absent, result.num_filtered) == (reasons.count("absent"), reasons.count("filtered"))


@pytest.mark.parametrize(("ap", "official"), [("rectangular", "bot"), ("trapezoidal", "dwopp")])
def test_golden(ap, official):
    with np.load(GOLDEN / "eval_small.npz") as file:
        case = dict(file)
    names = ("qf", "gf", "q_id", "g_id", "q_cam", "g_cam")
    result = evaluate(*(case[name] for name in names), ap=ap, max_rank=20)
    assert result.mAP == pytest.approx(float(case[f"map_{official}"]), rel=1e-12)
    np.testing.assert_allclose(result.cmc, case[f"cmc_{official}"], rtol=1e-6)  # kept in float32 there
    if official == "dwopp":
        np.testing.assert_allclose(result.ap, case["ap_dwopp"], rtol=1e-12)


def random_problem(num_queries=40, num_gallery=300, width=16, num_ids=12, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    counts = (num_queries, num_gallery)
    return (
        *(rng.standard_normal((count, width)).astype(dtype) for count in counts),
        *(rng.integers(num_ids, size=count) for count in counts),
        *(rng.integers(4, size=count) for count in counts),
    )


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("seed", range(3))
def test_equals_torchreid(metric, seed):
    metrics = pytest.importorskip("torchreid.reid.metrics")
    problem = random_problem(seed=seed)
    distances = metrics.compute_distance_matrix(*map(torch.from_numpy, problem[:2]), metric).numpy()
    cmc, mean_ap = metrics.evaluate_rank(distances, *problem[2:], max_rank=50, use_cython=False)
    result = evaluate(*problem, metric=metric)
    assert result.mAP == pytest.approx(float(mean_ap), abs=1e-9)
    np.testing.assert_allclose(result.cmc, cmc, rtol=1e-6)  # kept in float32 there


@pytest.mark.parametrize("width", [5, 61, 300, 631])
@pytest.mark.parametrize("num_gallery", [37, 218])
@pytest.mark.parametrize("flat", [False, True])
def test_equal_images_keep_the_order_of_the_gallery(width, num_gallery, flat):
    # A matrix product rounds equal columns differently at the edges of its tiles.
    rng = np.random.default_rng(width)
    gallery = np.repeat(rng.standard_normal((1, width), dtype=np.float32), num_gallery, axis=0)
    queries = rng.standard_normal((9, width), dtype=np.float32)
    gallery_ids = np.arange(num_gallery)
    query_ids = np.arange(0, 36, 4)
    search = FaissIndex().over(gallery, "cosine") if flat else None
    for block in (None, 1, 4):
        result = evaluate(queries, gallery, query_ids, gallery_ids, camera_filter=False, block=block, search=search)
        np.testing.assert_allclose(result.ap, 1 / (query_ids + 1))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 100]),  # levels of score: of 2, nearly all are ties
    st.sampled_from([0.5, 17, 1000]),
    st.sampled_from([0.01, 1.0]),
    st.sampled_from([1, 256]),
    st.booleans(),
)
def test_sorting_and_comparing_give_the_same_ranks(num_rows, num_columns, seed, levels, sort, few, sampled, scaled):
    rng = np.random.default_rng(seed)
    scores = rng.integers(levels, size=(num_rows, num_columns)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = np.finfo(np.float32).min  # as of a match that an index has not found
    scale = rng.integers(1, 4, size=num_columns).astype(np.float32) / 4 if scaled else None
    rows, columns = np.nonzero(rng.random(scores.shape) < 0.4)
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    kept = np.isfinite(scores[rows, columns])
    rows, columns = rows[kept], columns[kept]
    if not len(rows):
        return
    final = scores * scale if scaled else scores
    expected = [
        sum(
            other > final[row, column] or (other == final[row, column] and place < column)
            for place, other in enumerate(final[row])
        )
        for row, column in zip(rows, columns, strict=True)
    ]
    factors = torch.from_numpy(scale) if scaled else None
    tensor = torch.from_numpy(scores)
    with (
        mock.patch.multiple(matches, SORT=sort, COPIED=few, SAMPLED=sampled),  # every way of sorting
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        np.testing.assert_array_equal(count_ahead(tensor.clone(), rows, columns, factors), expected)
    np.testing.assert_array_equal(_count_by_comparing(torch.from_numpy(final), rows, columns), expected)


def test_metrics_do_not_depend_on_the_scale_of_float64_features():
    problem = random_problem()
    for metric in ("cosine", "euclidean"):
        result = evaluate(*problem, metric=metric)
        large = evaluate(*(features * 2.0**200 for features in problem[:2]), *problem[2:], metric=metric)
        np.testing.assert_array_equal(large.ap, result.ap)


def test_arrays_of_any_layout_are_accepted_and_not_changed():
    problem = random_problem(dtype=np.float32)
    queries, gallery = problem[0].copy(), problem[1].copy()
    expected, locked = evaluate(*problem).ap, gallery.copy()
    locked.flags.writeable = False
    for other in (gallery.astype(">f4"), locked, gallery[::-1].copy()[::-1], gallery[:, ::-1].copy()[:, ::-1]):
        np.testing.assert_array_equal(evaluate(queries, other, *problem[2:]).ap, expected)
    np.testing.assert_array_equal(problem[0], queries)
    np.testing.assert_array_equal(problem[1], gallery)
    assert evaluate(queries[:1][::-1], queries[:1][::-1], [1], [1], camera_filter=False).mAP == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_length_does_not_change_a_direction(dtype):
    """Squares of values around 1e-22 vanish in float32."""
    problem = random_problem(dtype=dtype)
    queries, gallery = (torch.from_numpy(each) for each in problem[:2])
    result = evaluate(*problem)
    units, _ = directions(gallery, "gallery")
    assert units.data_ptr() == gallery.data_ptr()  # ordinary rows are not copied
    least = {np.float32: 2.0**-120, np.float64: 2.0**-1000}[dtype]
    for scale in (least, least**0.5, least**0.6):
        short = gallery * scale
        short[5] = gallery[5]
        lengths = unit_rows(short, "gallery").norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
        torch.testing.assert_close(unit_rows(short, "g"), unit_rows(gallery, "g"), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(evaluate(queries * scale, short, *problem[2:]).ap, result.ap, atol=1e-6)
    short[7] = 0
    assert not unit_rows(short, "gallery")[7].any()


def test_warning_counts_queries_without_match():
    features = np.eye(4)
    result = evaluate(features, features, [1, 2, 3, 4], [1, 2, 9, 4], [0, 0, 0, 0], [1, 0, 0, 1])
    assert (result.num_valid, result.num_absent, result.num_filtered) == (2, 1, 1)
    assert result.warning == (
        "2 of 4 queries have no match: 1 with an identity that is not in the gallery, "
        "1 with one that occurs only under the query's own camera"
    )
    assert evaluate(features, features, [1] * 4, [1] * 4, camera_filter=False).warning == ""


def test_error_names_the_filter_that_removed_all_matches():
    features, ids, cams = np.eye(3), [1, 2, 3], [0, 0, 0]
    both = "2 queries .*1 more"
    for gallery_ids, named in ((ids, "camera_filter=False"), ([7, 8, 9], "3 queries"), ([1, 2, 9], both)):
        with pytest.raises(InputError, match=named):
            evaluate(features, features, ids, gallery_ids, cams, cams)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_features": np.full((3, 2), np.nan)}, r"query features: 3 of 3 .*rows 0, 1, 2\)"),
        ({"gallery_features": np.array([[1.0, 2], [np.inf, 0], [1, 1]])}, r"gallery features: 1 of 3.*rows 1\)"),
        ({"query_features": np.ones((3, 5))}, "query features have 5 .*gallery features 2"),
        ({"query_features": np.ones(3)}, r"shape \(3,\)"),
        ({"query_features": np.ones((3, 2), dtype=int)}, "torch.int64"),
        ({"query_features": [["a", "b"]] * 3}, r"query features: .*\(N, D\)"),
        ({"gallery_features": np.ones((0, 2))}, "gallery features: empty"),
        ({"query_ids": [1, 2]}, r"query identities: expected 3, .*\(2,\)"),
        ({"gallery_cams": [0.0, 1.5, 2.0]}, "gallery cameras: .*1.5"),
        ({"query_cams": None}, "camera_filter"),
        ({"metric": "hamming"}, "metric 'hamming'"),
        ({"ap": "circular"}, "ap 'circular'"),
        ({"gallery_ids": [[1], [2, 3], [1]]}, r"gallery identities: .*\[1\]"),
        ({"block": -1}, "block = -1"),
        ({"max_rank": -1}, "max_rank = -1"),
        ({"query_ids": ["a", "b", "c"]}, "^identities: .*1.*'a'"),
        ({"gallery_cams": ["a", "b", "c"]}, "^cameras: .*0.*'a'"),
        ({"query_ids": np.array(["a", 7, 8], object)}, "query identities: .*7.*'a'"),
        ({"query_ids": [b"a", b"b", b"c"]}, "query identities: .*b'a'"),
        ({"query_ids": np.array([2**70, 1, 2], object)}, f"query identities: {2**70}"),
        ({"query_ids": [2.0**53 + 2, 1, 2]}, "query identities: .*9007199254740994"),
        ({"query_ids": np.array([2**25, 1, 2], np.float32)}, "query identities: .*33554432"),
        ({"query_ids": [float("inf"), 1, 2]}, "query identities: .*inf"),
        ({"query_ids": "abc"}, "query identities: .*str"),
    ],
)
def test_invalid_input_is_named(change, message):
    arguments = {f"{which}_features": np.ones((3, 2)) for which in ("query", "gallery")}
    arguments |= {"query_ids": [1, 2, 3], "gallery_ids": [1, 2, 3], "query_cams": [0] * 3, "gallery_cams": [1] * 3}
    with pytest.raises(InputError, match=message):
        evaluate(**(arguments | change))


def exact_map(queries, gallery, query_ids, gallery_ids):
    """Of distances whose differences are taken before they are squared, in float64."""
    distances = ((queries[:, None].astype(float) - gallery[None].astype(float)) ** 2).sum(2)
    precisions = []
    for row, pid in zip(distances, query_ids, strict=True):
        found = np.flatnonzero(gallery_ids[np.argsort(row, kind="stable")] == pid)
        precisions.append(np.mean(np.arange(1, len(found) + 1) / (found + 1)))
    return np.mean(precisions)


@pytest.mark.parametrize("by", ["exact", "flat", "rerank"])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize(
    "case", ["plain", "offset", "large offset", "two domains", "small", "tiny", "denormal", "one axis"]
)
def test_float32_features_with_offset_or_tiny_values_are_ranked_exactly(case, metric, by):
    rng = np.random.default_rng(0)
    means = rng.standard_normal((30, 16))
    query_ids, gallery_ids = np.repeat(np.arange(30), 2), np.repeat(np.arange(30), 5)
    queries, gallery = (means[ids] + 0.3 * rng.standard_normal((len(ids), 16)) for ids in (query_ids, gallery_ids))
    change = {
        "plain": lambda x, ids: x,
        "offset": lambda x, ids: x + 300,
        "large offset": lambda x, ids: x + 1e4,
        "two domains": lambda x, ids: x + np.where(ids % 2, 1e4, -1e4)[:, None],
        "small": lambda x, ids: x * 2.0**-60,
        "tiny": lambda x, ids: x * 2.0**-110,
        "denormal": lambda x, ids: x * 2.0**-135,
        "one axis": lambda x, ids: np.c_[x, np.full(len(x), 3e4)],
    }[case]
    queries = change(queries, query_ids).astype(np.float32)
    gallery = change(gallery, gallery_ids).astype(np.float32)
    options = {"metric": metric, "camera_filter": False, "rerank": KReciprocal(k1=5, k2=3) if by == "rerank" else None}
    search = FaissIndex().over(gallery, metric) if by == "flat" else None
    result = evaluate(queries, gallery, query_ids, gallery_ids, search=search, **options)
    if by == "rerank":  # the definition of distances that are exact: those of float64
        wide = [each.astype(float) - gallery.astype(float).mean(0) for each in (queries, gallery)]
        scale = np.abs(wide[1]).max()
        wanted = evaluate(*(each / scale for each in wide), query_ids, gallery_ids, **options).mAP
    else:
        wanted = exact_map(queries, gallery, query_ids, gallery_ids)
    assert wanted > 0.9 and result.mAP == pytest.approx(wanted, abs=1e-3)


def test_identities_that_do_not_fit_are_refused():
    features = np.eye(2, dtype=np.float32)
    for wrong in (2**63, 2**64 - 1):  # the last one would be -1, and so junk
        with pytest.raises(InputError, match=f"gallery identities: {wrong}"):
            evaluate(features, features, [1, 2], np.array([1, wrong], np.uint64), camera_filter=False)
    largest = np.array([1, 2**63 - 1], np.uint64)
    assert evaluate(features, features, largest, largest, camera_filter=False).mAP == 1
