"""Effects of training options on a GPU: ``python options.py FOLDER``."""

import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from methods import SMALL, counted_steps
from simulated import SimulatedCUDA
from tiny import FEW, tiny_config
from torch import nn

from lreid.checkpoint import random_state, set_random_state
from lreid.config_keys import TrainSection
from lreid.methods import build_method
from lreid.models import Embedder
from lreid.training.run import train
from lreid.training.updates import Updates

CUDA = torch.device("cuda")
TF32 = {"TRAIN.PRECISION": "tf32", "TRAIN.DETERMINISTIC": True}
FP16 = {"TRAIN.PRECISION": "fp16", "TRAIN.OPTIMIZER": "sgd", "TRAIN.MOMENTUM": 0.9, "TRAIN.LR": 1e-4}


class PrecisionRecorder(SimulatedCUDA):
    """Record the precision of the gradients of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.backward: set[str] = set()

    def __torch_dispatch__(self, func: Any, *rest: Any) -> Any:
        if func is torch.ops.aten.convolution_backward.default:
            self.backward.add(torch.backends.cudnn.conv.fp32_precision)
        return super().__torch_dispatch__(func, *rest)


def tf32_is_used_only_in_training(folder: Path, device: PrecisionRecorder) -> None:
    """Previous models of a method are used in training, too."""
    forward: set[tuple[bool, str]] = set()  # whether in training, and the precision

    def look(module: nn.Module, *_: Any) -> None:
        if isinstance(module, nn.Conv2d):
            forward.add((module.training, torch.backends.cudnn.conv.fp32_precision))
            assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark

    hook = nn.modules.module.register_module_forward_pre_hook(look)
    train(tiny_config(SMALL, FEW, TF32, METHOD__NAME="dwopp", DEVICE="cuda"), folder / "tf32")
    hook.remove()
    assert forward == {(True, "tf32"), (False, "tf32"), (False, "ieee")} and device.backward == {"tf32"}
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] and not torch.are_deterministic_algorithms_enabled()


def fp16_steps_do_not_wait_for_the_device(folder: Path, device: SimulatedCUDA) -> None:
    with counted_steps(device) as waits:
        train(tiny_config(SMALL, FEW, FP16, METHOD__NAME="bot_ft", DEVICE="cuda"), folder / "fp16")
    assert {task: [sum(step.values()) for step in steps] for task, steps in waits.items()} == {0: 4 * [0], 1: 4 * [0]}


def fused_sgd_works_after_a_skipped_first_step() -> None:
    """Otherwise its momentum would be uninitialised memory."""
    method = build_method("dmml_ft", Embedder("few", height=32, width=16).to(CUDA))
    updates = Updates(method, TrainSection(OPTIMIZER="sgd", MOMENTUM=0.9, WEIGHT_DECAY=0.0, PRECISION="fp16"))
    updates.set_rates(lambda first: 0.1)
    before = [each.clone() for each in method.parameters()]
    for size, moved in ((math.inf, 0.0), (1.0, 0.1), (1.0, 0.1 + 0.19)):
        scale = updates.scaler.scale(torch.ones((), device=CUDA)).item()
        for each in method.parameters():
            each.grad = torch.full_like(each, size * scale)
        updates.scaler.step(updates.optimizer)
        updates.scaler.update()
        for old, each in zip(before, method.parameters(), strict=True):
            torch.testing.assert_close(each.detach(), old - moved)


def random_state_of_the_device_is_saved_and_restored() -> None:
    torch.cuda.manual_seed(7)
    state, drawn = random_state(), torch.cuda.get_rng_state()
    torch.cuda.manual_seed(8)
    assert not torch.equal(torch.cuda.get_rng_state(), drawn)
    set_random_state(state)
    assert torch.equal(torch.cuda.get_rng_state(), drawn)


if __name__ == "__main__":
    with PrecisionRecorder() as simulated:
        tf32_is_used_only_in_training(Path(sys.argv[1]), simulated)
        fp16_steps_do_not_wait_for_the_device(Path(sys.argv[1]), simulated)
        fused_sgd_works_after_a_skipped_first_step()
        random_state_of_the_device_is_saved_and_restored()
