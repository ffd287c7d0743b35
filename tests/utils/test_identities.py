"""Labels: missing values, junk, equality, and their effect in evaluations."""

import logging
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_inputs import cosines_and_labels, scores_and_labels

from lreid.errors import InputError
from lreid.gallery import Filter
from lreid.retrieval import CameraNorm, evaluate, evaluate_image_to_track, open_set_rates, self_retrieval
from lreid.retrieval.protocols import pair_scores
from lreid.utils.identities import as_labels, as_names, identities_of_test

pd = pytest.importorskip("pandas")

NAN = float("nan")
MISSING = [None, NAN, np.float32("nan"), np.datetime64("NaT"), pd.NA, pd.NaT, np.ma.masked, "", " \t", "\xa0"]
JUNK = ["-1", "-1.0", "-01", " -1", "-1. ", "-001.00", -1, -1.0, np.int8(-1), np.float16(-1)]


@pytest.mark.parametrize("unknown", [*MISSING, *JUNK], ids=repr)
def test_missing_and_junk_labels_become_unknown(unknown):
    assert as_names([unknown, 7, 7.0], "ids", 3).tolist() == [-1, 7, 7]
    assert as_names([unknown, "a", "7"], "ids", 3).tolist() == ["-1", "a", "7"]
    assert as_names([unknown], "ids", 1).tolist() == [-1]


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (np.array([1.0, NAN, 3]), [1, -1, 3]),
        (np.array([1.0, NAN, 3], np.float16), [1, -1, 3]),
        (torch.tensor([1.0, NAN, 3]), [1, -1, 3]),
        ([torch.tensor(1), None, torch.tensor(3.0)], [1, -1, 3]),
        (np.ma.array([1, 2, 3], mask=[0, 1, 0]), [1, -1, 3]),
        (np.ma.array(["a", "nan", "c"], mask=[0, 1, 0]), ["a", "-1", "c"]),
        (pd.Series([2**60 + 1, None, 3], dtype="Int64"), [2**60 + 1, -1, 3]),
        (pd.Series([1, None, 3]), [1, -1, 3]),
        (pd.Series(["a", None, pd.NA]), ["a", "-1", "-1"]),
        (pd.Series(["a", None, "c"], dtype="category"), ["a", "-1", "c"]),
        (["nan", "NaN", "a"], ["nan", "NaN", "a"]),  # text that somebody wrote
        (range(3), [0, 1, 2]),
        (np.array([-1.0, -2, 2**52]), [-1, -2, 2**52]),
        (["a\0", "a", "a "], ["a\0", "a", "a "]),
    ],
    ids=repr,
)
def test_labels_of_every_kind_of_column(column, labels):
    assert as_names(column, "ids", 3).tolist() == labels


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ([7, "a"], "'a'|7"),
        (["a", 7.0], "'a'|7"),
        ([1.5, 2], "1.5"),
        ([1e300, 2], "1e[+]300"),
        (np.array(["a", NAN]), "nan"),
        (np.array(["a", "<NA>"]), "<NA>"),
        ([{}, 1], "{}"),
        (np.array([True, False]), "bool"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), "datetime64"),
    ],
)
def test_invalid_labels_are_refused_by_name(values, fault):
    with pytest.raises(InputError, match=f"^ids: .*({fault})"):
        as_names(values, "ids", 2)


def test_text_is_no_integer_label():
    with pytest.raises(InputError, match="^ids: "):
        as_labels(["a", "b"], "ids", 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [("007", "7"), ("7.0", "7"), (" 7", "7"), ("00", "0"), ("+7", "7"), ("1E+05", "100000"), ("1.20e3", "1200")],
)
def test_two_spellings_of_a_number_are_two_labels_with_a_warning(one, other, caplog):
    features = np.eye(2)
    for queries, gallery in (([one, other], [one, other]), ([one, "a"], [other, one])):
        caplog.clear()
        result = evaluate(features, features, queries, gallery, camera_filter=False)
        assert result.mAP == (1.0 if queries == gallery else 0.5)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert repr(one) in caplog.text and repr(other) in caplog.text
    caplog.clear()
    evaluate(features, features, ["7", "-7"], ["7", "70"], camera_filter=False)
    assert not caplog.records


def test_unicode_forms_of_a_name_are_one_label():
    features, names = np.eye(2), ["José", "Ann"]
    other = [unicodedata.normalize("NFD", name) for name in names]
    assert other[0] != names[0] and evaluate(features, features, names, other, camera_filter=False).mAP == 1
    assert as_names(other, "ids", 2).tolist() == names
    assert Filter(identities=other) == Filter(identities=names)


@st.composite
def labelled(draw):
    """Identities and cameras of queries and gallery, as numbers and in other notations."""
    sizes = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    numbers, written = [], []
    for values in ([1, 2, -1], [1, 2, 3, -1]), ([0, 1, -1], [0, 1, -1]):
        form = draw(st.sampled_from([str, int, float, "camera {}".format]))
        for size, choice in zip(sizes, values, strict=True):
            own = draw(st.lists(st.sampled_from(choice), min_size=size, max_size=size))
            unknown = st.sampled_from([*MISSING, *JUNK])
            numbers.append(own)
            written.append([draw(unknown) if each == -1 else form(each) for each in own])
    return *sizes, numbers, written, draw(st.integers(0, 2**32 - 1))


def average_precisions(scores, ids, cams, gallery_ids, gallery_cams):
    """Compute by a loop in which unknown (-1) equals nothing; NaN for a query without a match."""
    for row, (pid, cam) in enumerate(zip(ids, cams, strict=True)):
        matches, seen, precisions = 0, 0, []
        for column in np.argsort(-scores[row], kind="stable"):
            if gallery_ids[column] == -1:
                continue
            right = pid == gallery_ids[column]
            if right and cam != -1 and cam == gallery_cams[column]:
                continue
            seen, matches = seen + 1, matches + right
            if right:
                precisions.append(matches / seen)
        yield np.mean(precisions) if precisions else np.nan


@settings(max_examples=150, deadline=None)
@given(labelled())
def test_unknown_labels_match_nothing_in_an_evaluation(problem):
    num_queries, num_gallery, numbers, written, seed = problem
    rng = np.random.default_rng(seed)
    queries, gallery = rng.standard_normal((num_queries, 6)), rng.standard_normal((num_gallery, 6))
    scores = queries @ (gallery / np.linalg.norm(gallery, axis=1, keepdims=True)).T
    (ids, gallery_ids), (cams, gallery_cams) = numbers[:2], numbers[2:]
    expected = list(average_precisions(scores, ids, cams, gallery_ids, gallery_cams))
    features = queries, gallery
    tracks = np.arange(num_gallery)
    for scored in (
        lambda: evaluate(*features, *written),
        lambda: evaluate_image_to_track(*scores_and_labels(*features, *written), tracks),
    ):
        if np.isnan(expected).all():
            with pytest.raises(InputError):
                scored()
        else:
            np.testing.assert_allclose(scored().ap, expected, rtol=1e-12)
    pairs = [(q, g) for q in range(num_queries) for g in range(num_gallery) if -1 not in (ids[q], gallery_ids[g])]
    other = [(q, g) for q, g in pairs if ids[q] != gallery_ids[g]]
    same = [(q, g) for q, g in pairs if ids[q] == gallery_ids[g] and (cams[q] == -1 or cams[q] != gallery_cams[g])]
    for found, pairs in zip(pair_scores(*cosines_and_labels(*features, *written)), (same, other), strict=True):
        cosines = [scores[pair] / np.linalg.norm(queries[pair[0]]) for pair in pairs]
        np.testing.assert_allclose(np.sort(found), np.sort(cosines), rtol=1e-6, atol=1e-7)


def test_query_without_an_identity_is_no_impostor():
    gallery, queries = np.eye(3), np.array([[1, 0.2, 0], [0.1, 0.2, 1.0], [0, 0.1, 1]])
    rates = [
        open_set_rates(*cosines_and_labels(queries[rows], gallery, ids, ["a", "b", "c"], None, None))
        for rows, ids in (([0, 1, 2], ["a", None, "c"]), ([0, 2], ["a", "c"]))
    ]
    assert rates[0] == rates[1]


def test_image_without_a_camera_does_not_match_itself():
    features, labels = np.array([[1.0, 0], [0, 1], [1, 0.1], [0, 1.0]]), np.array([1, 1, 2, -1])
    for cameras in ([None, -1, NAN, -1], [0, -1, -1, 0], [4, 5, 4, 4]):
        assert self_retrieval(features, labels, cameras) == 0.5  # each has the image of 2 in between, or not


def test_unknown_cameras_are_standardised_by_all_images():
    features = np.random.default_rng(0).standard_normal((30, 4))
    cameras = [0, 1, None, -1, NAN] * 6
    norm = CameraNorm.estimate(features, cameras)
    assert set(norm.cameras) == {0, 1}
    np.testing.assert_array_equal(norm(features, cameras), norm(features, [0, 1, 99, 98, 97] * 6))


def test_image_without_a_track_is_refused():
    for tracks in ([0, None], ["a", "-1"]):
        with pytest.raises(InputError, match="gallery tracks: image 1"):
            evaluate_image_to_track(*scores_and_labels(np.eye(2), np.eye(2), [1, 2], [1, 2], [0, 0], [1, 1]), tracks)


def test_unknown_identity_of_a_gallery_is_ranked_and_junk_is_not() -> None:
    features, gallery_ids = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), np.array([-1, 7, 8])
    junk, stranger = (
        evaluate(features[:1], features, [7], ids, camera_filter=False)
        for ids in (gallery_ids, identities_of_test(gallery_ids))
    )
    assert (junk.mAP, stranger.mAP) == (1.0, 0.5)
