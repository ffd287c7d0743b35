"""The benchmarks of real data sets: every name, order and count that a file promises."""

from __future__ import annotations

import pytest

from lreid.config import check_values, load_config
from lreid.data.datasets import specs

FILES = [
    "market1501-10",
    "msmt17v1-10",
    "msmt17v2-10",
    "veri776-10",
    "market1501-10-random",
    "msmt17v2-10-random",
    "veri776-10-random",
    "lreid-order1-noduke",
    "lreid-order2-noduke",
    "lpw-order1",
    "lreid-order1",
    "lreid-order2",
]
UNSEEN = ["viper", "ilids", "prid2011", "grid", "sensereid", "cuhk01", "cuhk02"]


@pytest.fixture
def bench(repository):
    def bench(name):
        cfg = load_config([repository / "configs" / "benchmarks" / f"{name}.yaml"])
        check_values(cfg)
        return cfg.BENCHMARK

    return bench


@pytest.mark.parametrize("name", FILES)
def test_every_file_names_itself_and_known_data_sets(bench, name):
    assert name == bench(name).NAME
    assert set(bench(name).TRAIN + bench(name).UNSEEN) <= set(specs())


@pytest.mark.parametrize("name", FILES[:7])
def test_ten_tasks(bench, name):
    assert (bench(name).TASKS_PER_DATASET, len(bench(name).TRAIN)) == (10, 1)
    assert ("random" if name.endswith("random") else "ascending") == bench(name).ORDER
    assert bench(name).IDENTITIES == 0


@pytest.mark.parametrize(
    ("name", "train"),
    [
        ("lreid-order1-noduke", ["market1501", "cuhk_sysu_sub", "msmt17_v2", "cuhk03_detected"]),
        ("lreid-order2-noduke", ["msmt17_v2", "market1501", "cuhk_sysu_sub", "cuhk03_detected"]),
        ("lreid-order1", ["market1501", "cuhk_sysu_sub", "dukemtmc_reid", "msmt17_v2", "cuhk03_labeled"]),
        ("lreid-order2", ["dukemtmc_reid", "msmt17_v2", "market1501", "cuhk_sysu_sub", "cuhk03_labeled"]),
        ("lpw-order1", ["market1501", "cuhk_sysu_sub", "lpw_s2", "msmt17_v2", "cuhk03_detected"]),
    ],
)
def test_lreid_orders(bench, name, train):
    benchmark = bench(name)
    assert train == benchmark.TRAIN
    assert benchmark.UNSEEN == UNSEEN
    assert (benchmark.TASKS_PER_DATASET, benchmark.IDENTITIES) == (1, 500)
    assert (benchmark.UNSEEN_GALLERIES, benchmark.SPLITS, benchmark.CAMERAS) == ("both", 1, "apart")
