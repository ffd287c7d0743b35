"""Runs that train an adapter only: the trunk stays, and checkpoints resume, load, export and merge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import reproducible_values, tiny_config, train_interrupted

import lreid
from lreid.build import model_of
from lreid.config_keys import Config
from lreid.errors import InputError
from lreid.export import export
from lreid.report import comparison_table
from lreid.training.run import train

pytestmark = pytest.mark.slow
IMAGES = np.random.default_rng(0).integers(256, size=(4, 32, 16, 3), dtype=np.uint8)


def config(method: str, **changes: Any) -> Config:
    adapter = {"MODEL.BACKBONE": "timm:test_vit", "MODEL.ADAPTER_SIZE": 2, "MODEL.ADAPTER_LAYERS": 2}
    shorter = {"TRAIN.EPOCHS": 1, "BENCHMARK.TASKS_PER_DATASET": 2}
    return tiny_config(adapter, shorter, METHOD__NAME=method, **changes)


CASES = [
    ("dwopp", "lora", True),
    ("lwf", "lora", False),
    ("bot_ft", "prompts", False),
    ("retrace", "bottleneck", False),
]


@pytest.mark.parametrize(("method", "kind", "merge"), CASES)
def test_only_adapters_are_trained_and_they_resume_load_and_export(
    method: str, kind: str, merge: bool, tmp_path: Path
) -> None:
    cfg = config(method, MODEL__ADAPTER=kind, MODEL__ADAPTER_MERGE=merge)
    results = train(cfg, tmp_path / "run")
    train_interrupted(cfg, tmp_path / "broken", 1)
    assert reproducible_values(train(cfg, tmp_path / "broken", resume=True)) == reproducible_values(results)
    model = lreid.load_model(tmp_path / "run")
    torch.manual_seed(cfg.SEED)
    before, after = model_of(cfg, pretrained=True).backbone, model.backbone
    trained = {name for name, each in before.named_parameters() if each.requires_grad}
    changed = {name for name, each in before.state_dict().items() if not torch.equal(each, after.state_dict()[name])}
    weights = {name for name in changed if name.endswith("base_layer.weight")}
    assert changed & trained and changed - trained == weights and bool(weights) == merge
    nbytes = sum(dict(before.named_parameters())[name].nbytes for name in trained)
    assert results["stored"]["adapter"] == nbytes
    assert f"{nbytes / 2**20:.4f}" in comparison_table([results], "csv", cost=True)
    plain = model.eval()(model.normalise(torch.from_numpy(IMAGES))).detach()
    extracted = torch.from_numpy(model.extract(IMAGES))  # through merged layers
    torch.testing.assert_close(extracted, model.neck(plain).detach(), atol=1e-5, rtol=1e-5)
    assert export(model, tmp_path / "model.pt2", form="torch") < 1e-5
    with pytest.raises(InputError, match="MODEL.ADAPTER"):
        train(config(method, MODEL__ADAPTER="none"), tmp_path / "run", resume=True)


def test_run_refuses_weights_with_another_adapter(tmp_path: Path) -> None:
    train(config("dwopp", MODEL__ADAPTER="prompts"), tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "task-02.pt"
    with pytest.raises(InputError, match="tensors missing"):
        train(config("dwopp", MODEL__ADAPTER="lora", MODEL__WEIGHTS=str(last)), tmp_path / "other")
    with pytest.raises(InputError, match="adapter='none'"):
        train(config("dwopp"), tmp_path / "third", before=last)
