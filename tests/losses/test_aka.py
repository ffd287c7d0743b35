import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import UNEQUAL, distance, draw, hardest_gaps, unit
from torch.nn import functional as F

from lreid.losses import plasticity_loss, smoothed_cross_entropy, stability_loss


def plasticity(features, labels, margin=0.3, change=lambda d: math.log1p(math.exp(d))):
    """The loss by nested loops."""
    gaps = hardest_gaps(features, labels, change=change)
    return sum(max(0.0, gap + margin) for gap in gaps if gap is not None) / len(labels)


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 20.0])
@pytest.mark.parametrize("labels", [UNEQUAL, [0, 0, 0, 1], [0, 1, 2, 3], [5, 5]])
def test_plasticity_matches_the_loops(scale, labels):
    features = draw(len(labels), 4, scale=scale)
    loss = plasticity_loss(features, torch.tensor(labels))
    assert loss.item() == pytest.approx(plasticity(features.tolist(), labels), rel=1e-9, abs=1e-9)


def test_plasticity_is_finite_where_the_official_code_overflows():
    features = draw(12, 64, scale=1e3).float()
    assert torch.log(1 + torch.exp(torch.cdist(features, features))).isinf().any()
    expected = plasticity(features.tolist(), UNEQUAL, change=lambda d: max(d, math.log(2)))
    assert plasticity_loss(features, torch.tensor(UNEQUAL)).item() == pytest.approx(expected, rel=1e-6)


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 20), st.floats(1e-6, 1e6))
def test_stability_matches_the_loops(vertices, width, seed, scale):
    new, old = draw(vertices, width, seed=seed), draw(vertices, width, seed=seed + 1, scale=scale)
    loss = stability_loss(new, old)
    pairs = zip(new.tolist(), old.tolist(), strict=True)
    expected = sum(distance(unit(a), unit(b), "sqeuclidean") for a, b in pairs) / vertices
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert 0 <= loss <= 4 + 1e-12


def test_stability_of_close_vertices_is_exact():
    old = draw(5, 2048, seed=1)
    step = draw(5, 2048, seed=2, scale=1e-6)
    sideways = step - (step * old).sum(1, keepdim=True) / old.square().sum(1, keepdim=True) * old
    angle = sideways.norm(dim=1) / old.norm(dim=1)
    assert stability_loss(old + sideways, old).item() == pytest.approx(angle.square().mean().item(), rel=1e-6)


def test_stability_of_zero_vertices():
    assert stability_loss(torch.zeros(5, 4), draw(5, 4)).item() == pytest.approx(1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothing_over_the_head_is_that_of_torch(smoothing):
    logits, labels = draw(6, 5), torch.tensor([0, 4, 1, 1, 2, 3])
    loss = smoothed_cross_entropy(logits, labels, smoothing=smoothing)
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, label_smoothing=smoothing))


def test_smoothing_may_cover_more_classes_than_the_head():
    logits, labels = draw(6, 500), torch.tensor([0, 499, 1, 1, 2, 3])
    targets = torch.full((6, 500), 0.1 / 2494, dtype=torch.float64)
    targets[torch.arange(6), labels] += 0.9
    expected = -(targets * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(smoothed_cross_entropy(logits, labels, num_classes=2494), expected)
    assert abs(expected - smoothed_cross_entropy(logits, labels)) > 0.1
