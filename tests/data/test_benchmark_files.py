"""The benchmarks of real data sets: every order and count that a file promises."""

import pytest

from lreid.config import check_values, load_config
from lreid.data.datasets import specs

TEN_TASKS = ["market1501-10", "msmt17v1-10", "msmt17v2-10", "veri776-10"]
TEN_TASKS += ["market1501-10-random", "msmt17v2-10-random", "veri776-10-random"]
UNSEEN = ["viper", "ilids", "prid2011", "grid", "sensereid", "cuhk01", "cuhk02"]
ORDERS = {
    "lreid-order1-noduke": ["market1501", "cuhk_sysu_sub", "msmt17_v2", "cuhk03_detected"],
    "lreid-order2-noduke": ["msmt17_v2", "market1501", "cuhk_sysu_sub", "cuhk03_detected"],
    "lreid-order1": ["market1501", "cuhk_sysu_sub", "dukemtmc_reid", "msmt17_v2", "cuhk03_labeled"],
    "lreid-order2": ["dukemtmc_reid", "msmt17_v2", "market1501", "cuhk_sysu_sub", "cuhk03_labeled"],
    "lpw-order1": ["market1501", "cuhk_sysu_sub", "lpw_s2", "msmt17_v2", "cuhk03_detected"],
}


@pytest.mark.parametrize("name", [*TEN_TASKS, *ORDERS])
def test_tasks_and_tests_of_every_file(name: str) -> None:
    cfg = load_config([f"benchmarks/{name}"])
    check_values(cfg)
    found = cfg.BENCHMARK
    assert name == found.NAME and set(found.TRAIN + found.UNSEEN) <= set(specs())
    if name in TEN_TASKS:
        assert (found.TASKS_PER_DATASET, len(found.TRAIN), found.IDENTITIES) == (10, 1, 0)
        assert ("random" if name.endswith("random") else "ascending") == found.ORDER
    else:
        assert (ORDERS[name], UNSEEN) == (found.TRAIN, found.UNSEEN)
        assert (found.TASKS_PER_DATASET, found.IDENTITIES, found.ORDER) == (1, 500, "ascending")
        assert (found.UNSEEN_GALLERIES, found.SPLITS, found.CAMERAS) == ("both", 1, "apart")
