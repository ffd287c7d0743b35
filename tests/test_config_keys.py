"""The table of keys: defaults that fit, and limits that hold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import as_arguments

from lreid.config import check_values, config_from_text, differing_keys, leaves, load_config
from lreid.config_keys import GROUPS, KEYS, Key
from lreid.errors import InputError


def test_every_key_has_a_section_and_a_valid_default() -> None:
    assert {name.rpartition(".")[0] for name in KEYS} == {"", *GROUPS}
    assert not {name: fault for name, key in KEYS.items() if (fault := key.rule.fault(key.default))}


def values(key: Key) -> st.SearchStrategy[object]:
    """All values that a key may have; texts and lists of those that no other check concerns."""
    if key.rule.choices:
        one = st.sampled_from(list(key.rule.choices))
        return st.lists(one) if isinstance(key.default, list) else one
    if isinstance(key.default, bool):
        return st.booleans()
    if isinstance(key.default, int):
        return st.integers(key.rule.least, key.rule.most)
    if isinstance(key.default, float):
        above, below = key.rule.above, key.rule.below
        low, high = (key.rule.least if above is None else above), (key.rule.most if below is None else below)
        open_ends = {"exclude_min": above is not None, "exclude_max": below is not None}
        return st.floats(low, high, **open_ends, allow_infinity=False, allow_nan=False)
    name = st.from_regex(r"[a-z]{2,9}", fullmatch=True).map("x{}".format)  # no word of Python such as none
    if isinstance(key.default, str):
        return name if not key.rule.fault("xname") else st.just(key.default)
    if len(key.default) == 3:
        return st.lists(st.floats(0.1, 1), min_size=3, max_size=3)
    group = st.tuples(name, st.integers(1, 99)).map(list)
    fitting = [(name, "xname"), (st.integers(1, 99), 1), (group, ["xname", 1])]
    return st.lists(next(strategy for strategy, example in fitting if not key.rule.fault([example])))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.fixed_dictionaries({}, optional={name: values(key) for name, key in KEYS.items() if name != "IMPORTS"}))
def test_valid_values_survive_a_dump(keys: dict[str, object]) -> None:
    cfg = load_config(overrides=as_arguments(keys))
    check_values(cfg)
    assert {name: value for name, value in leaves(cfg) if name in keys} == keys
    assert differing_keys(cfg, config_from_text(cfg.dump(), "dump")) == []


@pytest.mark.parametrize(
    "name", [name for name, key in KEYS.items() if (key.rule.least, key.rule.most, key.rule.above) != (None,) * 3]
)
def test_values_beyond_a_limit_are_refused(name: str) -> None:
    key = KEYS[name]
    for limit, fault in (
        (None if key.rule.least is None else key.rule.least - 1, f"it must be {key.rule.least} or more"),
        (key.rule.above, f"it must be above {key.rule.above}"),
        (None if key.rule.most is None else key.rule.most + 1, f"it must be {key.rule.most} or less"),
    ):
        if limit is not None:
            value = float(limit) if type(key.default) is float else limit
            with pytest.raises(InputError, match=f"^{name} is {value}; {fault}$"):
                check_values(load_config(overrides=[name, str(limit)]))
