"""Filters: against a loop, and with values that would like to be more than numbers."""

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
def test_allows_what_a_loop_allows(where, images):
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
def test_an_expression_is_made_of_numbers_and_known_words(where):
    words = re.findall(r"[A-Za-z_]+", expression(where))
    assert set(words) <= {"identity", "camera", "time", "in", "not", "and"}
    assert not set(expression(where)) & set("'\"`;\\")


class Sly(int):
    """A number that prints something else."""

    def __repr__(self) -> str:
        return "0] or key >= 0 or camera in [0"

    def __format__(self, _: str) -> str:
        return repr(self)

    __str__ = __repr__


@pytest.mark.parametrize("name", ["cameras", "not_cameras", "identities", "not_identities"])
def test_only_integers_get_into_a_filter(name):
    for hostile in ([1.5], [None], [b"1"], [np.nan], ["  "], [[1]], [2.0**60]):
        with pytest.raises(InputError, match=f"filter {name}: "):
            Filter(**{name: hostile})
    assert Filter(**{name: [np.float32(1), 1, " -1.0"]}) == Filter(**{name: [-1, 1]})
    with pytest.raises(InputError, match=f"filter {name}: '1 or 1 == 1' is one value"):
        Filter(**{name: "1 or 1 == 1"})
    with pytest.raises(InputError, match=f"filter {name}: {2**63}"):
        Filter(**{name: [2**63]})
    where = Filter(**{name: [Sly(3), np.int32(4), True]})
    assert all(type(value) is int for value in getattr(where, name))
    assert "or" not in expression(where).split()


def test_text_gets_no_further_than_the_gallery():
    hostile = Filter(identities=["1] or camera in [2", 3], not_both=[("a", "0) or (1 == 1")])
    with pytest.raises(ValueError):
        expression(hostile)
    numbers = {"identity": {"1] or camera in [2": 8, "a": 9}, "camera": {"0) or (1 == 1": 7}}
    known = hostile.numbered(lambda what, label: numbers[what].get(label, label))
    assert known == Filter(identities=[8, 3], not_both=[(9, 7)])


def test_times_and_pairs_are_integers_too():
    with pytest.raises(InputError, match="filter since: '0 or 1' is not an integer"):
        Filter(since="0 or 1")
    with pytest.raises(InputError, match="filter not_both: '78' is one value"):
        Filter(not_both=["78"])
    with pytest.raises(InputError, match="filter not_both: needs pairs of an identity and a camera"):
        Filter(not_both=[(1, 2), (1, 2, 3)])
    for name in ("cameras", "not_identities", "not_both"):
        with pytest.raises(InputError, match=f"filter {name}: 3 is one value; give a list of them"):
            Filter(**{name: 3})
    assert expression(Filter()) == ""
    assert expression(Filter(cameras=[2, 1, 2], until=9, not_both=[(4, 5)])) == (
        "(camera in [1, 2]) and (time > -1) and (time < 9) and (not (identity == 4 and camera == 5))"
    )
