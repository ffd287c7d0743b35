from pathlib import Path

import pytest

from lreid.errors import InputError
from lreid.report.tables import group_names, grouped, labels, require_one_run_a_seed, short_key

CONFIG = {
    "BENCHMARK.ORDER": "random",
    "BENCHMARK.ORDER_SEED": 0,
    "EVAL.METRIC": "cosine",
    "METHOD.METRIC": "cosine",
    "METHOD.TEMPERATURE": 1.0,
    "TRAIN.EPOCHS": 30,
}


@pytest.fixture
def run(results):
    """Results with a config of their own; keys of the config are given as ``METHOD__TEMPERATURE``."""

    def make(protocol="aaa", method="dwopp", benchmark="market", **changes):
        config = CONFIG | {key.replace("__", "."): value for key, value in changes.items()}
        return results(protocol=protocol, method=method, benchmark=benchmark, config=config)

    return make


def test_runs_of_one_config_have_one_name(run):
    assert group_names([run(), run()]) == [("market", "dwopp")] * 2


def test_only_keys_that_differ_within_a_method_are_told(run):
    runs = [
        run(METHOD__TEMPERATURE=2.0),
        run(),
        run(METHOD__TEMPERATURE=2, TRAIN__EPOCHS=60),
        run(method="joint", TRAIN__EPOCHS=5),
        run(benchmark="other", TRAIN__EPOCHS=600),
    ]
    assert group_names(runs) == [
        ("market", "dwopp, TEMPERATURE 2.0, EPOCHS 30"),
        ("market", "dwopp, TEMPERATURE 1.0, EPOCHS 30"),
        ("market", "dwopp, TEMPERATURE 2.0, EPOCHS 60"),
        ("market", "joint"),
        ("other", "dwopp"),
    ]


def test_a_whole_number_is_the_same_as_a_float(run):
    names = group_names([run(METHOD__TEMPERATURE=1), run(), run(METHOD__TEMPERATURE=2.0)])
    assert names[0] == names[1] != names[2]


def test_keys_of_one_name_keep_their_group(run):
    names = group_names([run(METHOD__METRIC="euclidean"), run()])
    assert names == [("market", "dwopp, METHOD.METRIC euclidean"), ("market", "dwopp, METHOD.METRIC cosine")]
    assert short_key("METHOD.METRIC", CONFIG) == "METHOD.METRIC"
    assert short_key("TRAIN.EPOCHS", CONFIG) == "EPOCHS"


def test_another_protocol_is_told_by_the_config(run):
    runs = [run(), run("bbb", BENCHMARK__ORDER_SEED=1), run("bbb", BENCHMARK__ORDER_SEED=1, method="joint")]
    assert group_names(runs) == [
        ("market, ORDER_SEED 0", "dwopp"),
        ("market, ORDER_SEED 1", "dwopp"),
        ("market, ORDER_SEED 1", "joint"),
    ]


def test_keys_of_the_data_that_change_nothing_are_left_out(run):
    assert group_names([run(), run(BENCHMARK__ORDER_SEED=1)]) == [("market", "dwopp")] * 2


def test_another_protocol_by_the_same_config_has_its_fingerprint(run):
    assert group_names([run(), run("bbb")]) == [("market [aaa]", "dwopp"), ("market [bbb]", "dwopp")]


def test_runs_without_a_config_stand_alone(run, results):
    old = results(protocol="aaa", benchmark="market")
    assert group_names([old, old]) == [("market", "dwopp")] * 2
    assert group_names([old, run()]) == [("market", "dwopp, config unknown"), ("market", "dwopp")]


def test_a_key_that_a_run_does_not_have_stands_in_its_name(run):
    gone = run()
    del gone["config"]["TRAIN.EPOCHS"]
    assert group_names([gone, run()]) == [("market", "dwopp, without TRAIN.EPOCHS"), ("market", "dwopp")]


def test_groups_hold_what_may_be_averaged(run, results):
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


def test_each_run_stands_alone(results):
    runs = [results(seed=seed) for seed in (3, 0, 3)]
    assert [(group.seed, len(group.runs)) for group in grouped(runs, each=True)] == [("3", 1), ("0", 1), ("3", 1)]


def test_a_seed_counts_once(run, results):
    folders = [Path(name) for name in "abcd"]
    others = [run(), run(TRAIN__EPOCHS=60), run(method="joint"), run() | {"seed": 1}]
    require_one_run_a_seed(others, folders)
    with pytest.raises(InputError, match="^d: has the same seed and config as b, .* pass only one of the two"):
        require_one_run_a_seed([*others[2:], *others[:1], run() | {"seed": 1}], folders)


def test_labels_tell_what_differs(results):
    runs = [results(rows=4), results(rows=2), results(rows=4, method="joint")]
    assert labels(grouped(runs)) == ["dwopp", "dwopp, 2/4 tasks", "joint"]
    assert labels(grouped([results(rows=4), results(rows=4, ap="trapezoidal")])) == [
        "dwopp, rectangular AP",
        "dwopp, trapezoidal AP",
    ]
