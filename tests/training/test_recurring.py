"""Every method trains where identities of a task return on the next one."""

from pathlib import Path

import clips
import pytest
from tiny import FEW, NETWORKS, tiny_config

from lreid.build import benchmark_of
from lreid.methods import method_class, method_defaults, method_names
from lreid.training.run import train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unwritten_pages")]
CAMERAS = {"BENCHMARK.GROUPS": [["north", 0, 1], ["south", 2, 3]], "BENCHMARK.TASKS_PER_DATASET": 1, "TRAIN.EPOCHS": 1}


@pytest.mark.parametrize("name", method_names())
def test_identities_may_return(name: str, tmp_path: Path) -> None:
    takes = name != "contrast_scoring" and "exemplars" in method_defaults(method_class(name))
    exemplars = {"METHOD.EXEMPLARS": 8} if takes else {}
    if name == "pad":
        clips.register()
    cfg = tiny_config(FEW, NETWORKS.get(name, {}), CAMERAS, exemplars, METHOD__NAME=name)
    first, second = benchmark_of(cfg).tasks
    assert set(first.classes) & set(second.classes)
    results = train(cfg, tmp_path / "run")
    assert len(results["mAP"]) == 2
