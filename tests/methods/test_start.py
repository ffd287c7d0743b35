"""The starting model stays as it is."""

from pathlib import Path

import pytest
import torch
from tiny import FEW, tiny_config

from lreid.build import model_of
from lreid.loading import load_model
from lreid.training.run import train


@pytest.mark.slow
def test_start_leaves_the_network_unchanged(tmp_path: Path) -> None:
    cfg = tiny_config(FEW, METHOD__NAME="start")
    train(cfg, tmp_path / "run")
    torch.manual_seed(cfg.SEED)
    before, after = (
        model_of(cfg, pretrained=True).state_dict(),
        load_model(tmp_path / "run" / "checkpoints" / "task-03.pt").state_dict(),
    )
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
