"""Names of runs and groups: what may be averaged, and how groups differ."""

import pytest

from lreid.report.tables import group_names, grouped, labels, short_key

CONFIG = {
    "BENCHMARK.ORDER": "random",
    "BENCHMARK.ORDER_SEED": 0,
    "EVAL.METRIC": "cosine",
    "METHOD.METRIC": "cosine",
    "METHOD.TEMPERATURE": 1.0,
    "TRAIN.EPOCHS": 30,
}
SEED_1 = {"protocol": "bbb", "BENCHMARK__ORDER_SEED": 1}


@pytest.fixture
def run(results):
    """Make results with a config, whose keys are given as ``METHOD__TEMPERATURE``; None removes a key."""

    def make(protocol="aaa", method="dwopp", benchmark="market", **changes):
        config = CONFIG | {key.replace("__", "."): value for key, value in changes.items()}
        config = {key: value for key, value in config.items() if value is not None}
        return results(protocol=protocol, method=method, benchmark=benchmark, config=config)

    return make


NAMES = {
    "the same config": ([{}, {}], ["market: dwopp", "market: dwopp"]),
    "keys that differ within a method": (
        [
            {"METHOD__TEMPERATURE": 2.0},
            {},
            {"METHOD__TEMPERATURE": 2, "TRAIN__EPOCHS": 60},
            {"method": "joint", "TRAIN__EPOCHS": 5},
            {"benchmark": "other", "TRAIN__EPOCHS": 600},
        ],
        [
            "market: dwopp, TEMPERATURE 2.0, EPOCHS 30",
            "market: dwopp, TEMPERATURE 1.0, EPOCHS 30",
            "market: dwopp, TEMPERATURE 2.0, EPOCHS 60",
            "market: joint",
            "other: dwopp",
        ],
    ),
    "a whole number equals a float": (
        [{"METHOD__TEMPERATURE": 1}, {}, {"METHOD__TEMPERATURE": 2.0}],
        [f"market: dwopp, TEMPERATURE {value}" for value in ("1.0", "1.0", "2.0")],
    ),
    "two keys of one name": (
        [{"METHOD__METRIC": "euclidean"}, {}],
        ["market: dwopp, METHOD.METRIC euclidean", "market: dwopp, METHOD.METRIC cosine"],
    ),
    "a protocol that a key changes": (
        [{}, SEED_1, SEED_1 | {"method": "joint"}],
        ["market, ORDER_SEED 0: dwopp", "market, ORDER_SEED 1: dwopp", "market, ORDER_SEED 1: joint"],
    ),
    "a key that changes no protocol": ([{}, {"BENCHMARK__ORDER_SEED": 1}], ["market: dwopp", "market: dwopp"]),
    "protocols of one config": ([{}, {"protocol": "bbb"}], ["market [aaa]: dwopp", "market [bbb]: dwopp"]),
    "a key that a run lacks": ([{"TRAIN__EPOCHS": None}, {}], ["market: dwopp, without TRAIN.EPOCHS", "market: dwopp"]),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_contain_what_differs(run, case):
    changes, names = NAMES[case]
    assert [": ".join(name) for name in group_names([run(**each) for each in changes])] == names


def test_short_keys_are_unique():
    assert short_key("METHOD.METRIC", CONFIG) == "METHOD.METRIC"
    assert short_key("TRAIN.EPOCHS", CONFIG) == "EPOCHS"


def test_runs_without_a_config_have_their_own_name(run, results):
    old = results(protocol="aaa", benchmark="market")
    assert group_names([old, old]) == [("market", "dwopp")] * 2
    assert group_names([old, run()]) == [("market", "dwopp, config unknown"), ("market", "dwopp")]


def test_groups_contain_what_may_be_averaged(run, results):
    runs = [
        run(),
        run(TRAIN__EPOCHS=60),
        run(),
        results(rows=4, method="joint", seen=("plaza",)),
        results(rows=4, method="joint"),
        results(rows=4, method="joint", ap="trapezoidal"),
    ]
    groups = grouped(runs)
    assert [[runs.index(each) for each in group.runs] for group in groups] == [[0, 0], [1], [3], [4], [5]]
    assert [group.tasks for group in groups] == ["3/4", "3/4", "4", "4", "4"]
    assert groups[0].name == "dwopp, EPOCHS 30, market, rectangular, 3/4 tasks"
    seeds = [results(seed=seed) for seed in (3, 0, 3)]
    assert [(group.seed, len(group.runs)) for group in grouped(seeds, each=True)] == [("3", 1), ("0", 1), ("3", 1)]


def test_labels_contain_what_differs(results):
    runs = [results(rows=4), results(rows=2), results(rows=4, method="joint")]
    assert labels(grouped(runs)) == ["dwopp", "dwopp, 2/4 tasks", "joint"]
    both = [results(rows=4), results(rows=4, ap="trapezoidal")]
    assert labels(grouped(both)) == ["dwopp, rectangular AP", "dwopp, trapezoidal AP"]
