"""Half precision: losses and weights stay in float32."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import FEW, ONE_TASK, tiny_config

from lreid.config_keys import TrainSection
from lreid.methods import build_method
from lreid.models import Embedder, ProjectedEmbedder, frozen_copy
from lreid.training import run
from lreid.training.run import train
from lreid.training.updates import Updates
from lreid.utils.devices import PRECISIONS, has_instructions

IMAGES = torch.randn(8, 3, 32, 16, generator=torch.Generator().manual_seed(0))


config = partial(tiny_config, FEW, {"DEVICE": "cpu", "TRAIN.EPOCHS": 1})


def embedder(precision: str = "fp32") -> Embedder:
    torch.manual_seed(1)
    model = Embedder("small", height=32, width=16)
    model.precision = PRECISIONS[precision]
    return model


def test_networks_in_half_precision_return_float32() -> None:
    exact, half = embedder(), embedder("bf16")
    inside: list[torch.dtype] = []
    half.backbone.register_forward_hook(lambda module, inputs, output: inside.append(output.dtype))
    features = half(IMAGES)
    assert inside == [torch.bfloat16] and features.dtype == torch.float32
    error = (features - exact(IMAGES)).norm() / exact(IMAGES).norm()
    assert 1e-4 < error < 0.05
    features.square().sum().backward()
    assert all(each.grad.dtype == torch.float32 for each in half.parameters())


def test_extraction_uses_float32() -> None:
    exact, half = embedder().eval(), embedder("bf16")
    np.testing.assert_array_equal(half.extract(IMAGES), exact.extract(IMAGES))
    assert half.precision == torch.bfloat16 and half.training


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_teacher_computes_in_the_precision_of_its_student(wrapped: bool) -> None:
    model = embedder("fp16")
    teacher = frozen_copy(ProjectedEmbedder(model) if wrapped else model)
    (copied,) = [each for each in teacher.modules() if isinstance(each, Embedder)]
    assert copied is not model and copied.precision == torch.float16


@pytest.mark.slow
def test_losses_in_half_precision_are_similar(tmp_path: Path) -> None:
    exact, half = (train(config(ONE_TASK, TRAIN__PRECISION=each), tmp_path / each) for each in ("fp32", "bf16"))
    first = [each["loss_history"][0]["dmml"] for each in (exact, half)]
    assert first[0] != first[1] and first[1] == pytest.approx(first[0], rel=0.2)


@pytest.mark.slow
def test_missing_instructions_cause_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "has_instructions", lambda device, precision: precision != "bf16")
    with caplog.at_level("WARNING", "lreid"):
        train(config(ONE_TASK, TRAIN__PRECISION="bf16"), tmp_path / "run")
    assert "TRAIN.PRECISION bf16: " in caplog.text


@pytest.mark.parametrize("native", [False, True])
def test_devices_that_compute_in_half_precision(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: native)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert has_instructions(cpu, "fp32") and has_instructions(gpu, "fp32")
    assert has_instructions(cpu, "bf16") == has_instructions(gpu, "bf16") == native
    assert has_instructions(gpu, "fp16")


def test_sgd_with_momentum_supports_a_skipped_first_step() -> None:
    """fp16 begins with a large scale of the loss, and skips steps with infinite gradients."""
    method = build_method("dmml_ft", embedder())
    updates = Updates(method, TrainSection(OPTIMIZER="sgd", MOMENTUM=0.9, WEIGHT_DECAY=0.0, PRECISION="fp16"))
    updates.set_rates(lambda first: 0.1)
    before = [each.clone() for each in method.parameters()]
    for size, moved in ((math.inf, False), (1.0, True)):
        scale = updates.scaler.scale(torch.ones(())).item()
        for each in method.parameters():
            each.grad = torch.full_like(each, size * scale)
        updates.scaler.step(updates.optimizer)
        updates.scaler.update()
        step = -0.1 if moved else 0.0
        for old, each in zip(before, method.parameters(), strict=True):
            torch.testing.assert_close(each.detach(), old + step)


@pytest.mark.slow
def test_a_mean_gradient_over_batches_is_one_update(tmp_path: Path) -> None:
    whole = train(config(METHOD__NAME="dmml_ft", TRAIN__ACCUMULATE=2), tmp_path / "both")
    single = train(config(METHOD__NAME="dmml_ft"), tmp_path / "one")
    assert whole["images_trained"] == single["images_trained"]
    assert whole["steps_trained"] == single["steps_trained"] / 2
    assert whole["loss_history"][0]["dmml"] != single["loss_history"][0]["dmml"]


@pytest.mark.slow
def test_augmentation_on_the_device_gives_similar_losses(tmp_path: Path) -> None:
    one = train(config(ONE_TASK, METHOD__NAME="dmml_ft"), tmp_path / "cpu")
    other = train(config(ONE_TASK, METHOD__NAME="dmml_ft", DATA__AUGMENT_ON="device"), tmp_path / "device")
    first, second = (each["loss_history"][0]["dmml"] for each in (one, other))
    assert second == pytest.approx(first, rel=1e-3)
