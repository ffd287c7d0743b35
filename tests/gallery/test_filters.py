"""Filters compared with a loop, and values that are not labels."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.gallery import Filter
from lreid.gallery.milvus_store import expression

small = st.integers(-1, 3)
several = st.lists(small, max_size=3)
filters = st.builds(
    Filter,
    cameras=st.none() | several,
    not_cameras=several,
    identities=st.none() | several,
    not_identities=several,
    since=st.none() | st.integers(-2, 6),
    until=st.none() | st.integers(-2, 6),
    not_both=st.lists(st.tuples(small, small), max_size=2),
)


@given(where=filters, images=st.lists(st.tuples(small, small, st.integers(-1, 5)), max_size=8))
def test_filter_allows_the_same_images_as_a_loop(where, images):
    columns = np.array(images, dtype=np.int64).reshape(-1, 3).T
    for (pid, cam, time), allowed in zip(images, where.allows(*columns), strict=True):
        in_time = where.since is None and where.until is None
        if not in_time and time >= 0:
            in_time = (where.since is None or time >= where.since) and (where.until is None or time < where.until)
        assert allowed == (
            (where.cameras is None or cam in where.cameras)
            and cam not in where.not_cameras
            and (where.identities is None or pid in where.identities)
            and pid not in where.not_identities
            and (pid, cam) not in where.not_both
            and in_time
        )


@given(filters)
def test_expression_consists_of_numbers_and_field_names(where):
    words = re.findall(r"[A-Za-z_]+", expression(where))
    assert set(words) <= {"identity", "camera", "time", "in", "not", "and"}
    assert not set(expression(where)) & set("'\"`;\\")


@pytest.mark.parametrize("name", ["cameras", "not_cameras", "identities", "not_identities"])
def test_labels_of_a_filter_are_integers_or_text(name):
    for wrong in ([1.5], [None], [b"1"], [np.nan], ["  "], [[1]], [2.0**60], "1 or 1 == 1", 3, [2**63]):
        with pytest.raises(InputError, match=f"filter {name}: "):
            Filter(**{name: wrong})
    assert Filter(**{name: [np.float32(1), 1, " -1.0"]}) == Filter(**{name: [-1, 1]})


def test_text_does_not_reach_an_expression():
    where = Filter(identities=["1] or camera in [2", 3], not_both=[("a", "0) or (1 == 1")])
    with pytest.raises(ValueError):
        expression(where)
    numbers = {"identity": {"1] or camera in [2": 8, "a": 9}, "camera": {"0) or (1 == 1": 7}}
    numbered = where.numbered(lambda what, label: numbers[what].get(label, label))
    assert numbered == Filter(identities=[8, 3], not_both=[(9, 7)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("since", "0 or 1"),
        ("since", 1_772_438_400_000),
        ("until", 600_000_000),
        ("not_both", ["78"]),
        ("not_both", [(1, 2), (1, 2, 3)]),
        ("not_both", 3),
    ],
)
def test_invalid_times_and_pairs_are_named(name, value):
    with pytest.raises(InputError, match=f"filter {name}"):
        Filter(**{name: value})


def test_expression_contains_every_condition():
    assert expression(Filter()) == ""
    assert expression(Filter(cameras=[2, 1, 2], until=9, not_both=[(4, 5)])) == (
        "(camera in [1, 2]) and (time > -1) and (time < 9) and (not (identity == 4 and camera == 5))"
    )
