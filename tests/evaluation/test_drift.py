"""Drift against loops over plain numbers, and training that nobody disturbs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.evaluation import DriftRecorder, feature_drift
from lreid.models import Embedder


def features(seed: int, count: int, dim: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim))


def unit(row: np.ndarray) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    return [value / length for value in row]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return sum(x * y for x, y in zip(unit(a), unit(b), strict=True))


@given(seed=st.integers(0, 1000), count=st.integers(1, 6), dim=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_drift_matches_a_loop(seed: int, count: int, dim: int) -> None:
    before, after = features(seed, count, dim), features(seed + 1, count, dim)
    pairs = list(zip(before, after, strict=True))
    moved = [math.sqrt(sum((x - y) ** 2 for x, y in zip(unit(a), unit(b), strict=True))) for a, b in pairs]
    assert feature_drift(before, after) == pytest.approx(sum(moved) / count)
    turned = sum(1 - cosine(a, b) for a, b in pairs) / count
    assert feature_drift(before, after, "cosine") == pytest.approx(turned, abs=1e-12)


def test_small_drift_is_exact() -> None:
    """``1 - cos`` in float32 would give 0 here."""
    before = torch.tensor([[1.0, 0.0]])
    after = torch.tensor([[1.0, 1e-5]])
    assert feature_drift(before, after, "cosine") == pytest.approx(5e-11, rel=1e-3)


def test_drift_refuses_bad_input() -> None:
    with pytest.raises(InputError, match="same images"):
        feature_drift(features(0, 3), features(0, 4))
    with pytest.raises(InputError, match="metric"):
        feature_drift(features(0, 3), features(0, 3), "manhattan")
    with pytest.raises(InputError, match="NaN"):
        feature_drift(features(0, 3), np.full((3, 4), np.nan))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 32, 16, 3), dtype=np.uint8)


def small_model() -> tuple[Embedder, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16, neck=True).train()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def update(model: Embedder, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    batch = torch.randn(6, 3, 32, 16)  # from the global random state
    model.neck(model(batch)).square().mean().backward()
    optimizer.step()


def test_recorder_measures_every_set_in_the_first_steps() -> None:
    model, optimizer = small_model()
    sets = {"buffer": images(5), "held_out": images(7)}
    recorder = DriftRecorder(model, sets | {"empty": images(0)}, steps=3)
    seen = {name: [model.extract(each)] for name, each in sets.items()}
    for _ in range(5):
        update(model, optimizer)
        recorder.after_step()
        for name, each in sets.items():
            seen[name].append(model.extract(each))
    for name, (first, *later) in seen.items():
        steps = [feature_drift(a, b) for a, b in zip([first, *later], later, strict=False)]
        assert recorder.curves[name]["step"] == steps[:3]
        assert recorder.curves[name]["since_switch"] == [feature_drift(first, each) for each in later[:3]]
        assert steps[0] > 0
        cosines = [feature_drift(a, b, "cosine") for a, b in zip([first, *later], later, strict=False)]
        assert recorder.curves[name]["step_cosine"] == cosines[:3]
        since = [feature_drift(first, each, "cosine") for each in later[:3]]
        assert recorder.curves[name]["since_switch_cosine"] == since
    assert recorder.curves.keys() == sets.keys()


def test_recorder_does_not_change_training() -> None:
    def trained(watched: bool) -> dict[str, torch.Tensor]:
        model, optimizer = small_model()
        model.neck.eval()  # a part may be in another mode than the whole
        modes = [module.training for module in model.modules()]
        recorder = DriftRecorder(model, {"held_out": images(5)}, steps=4) if watched else None
        for _ in range(4):
            update(model, optimizer)
            if recorder:
                recorder.after_step()
            assert [module.training for module in model.modules()] == modes
        return model.state_dict() | {"random": torch.get_rng_state()}

    alone, watched = trained(False), trained(True)
    assert alone.keys() == watched.keys()
    for name, value in alone.items():
        assert torch.equal(value, watched[name]), name
