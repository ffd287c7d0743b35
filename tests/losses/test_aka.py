import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import distance, golden_names, load_golden, unit
from torch.nn import functional as F

from lreid.losses import plasticity_loss, smoothed_cross_entropy, stability_loss

UNEQUAL = [2, 0, 1, 2, 0, 2, 1, 0, 0, 2, 2, 3]


def draw(rows, width=4, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)


def plasticity(features, labels, margin):
    """The loss by nested loops."""
    total = 0.0
    for anchor, own in zip(features, labels, strict=True):
        to = [
            (math.log1p(math.exp(max(distance(anchor, other, "euclidean"), 1e-6))), label)
            for other, label in zip(features, labels, strict=True)
        ]
        others = [d for d, label in to if label != own]
        if others:
            total += max(0.0, max(d for d, label in to if label == own) - min(others) + margin)
    return total / len(labels)


# Plasticity


@pytest.mark.parametrize("name", golden_names("aka_plasticity"))
def test_plasticity_golden(name):
    hyper, arrays = load_golden(name)
    features = arrays["feature"].requires_grad_()
    loss = plasticity_loss(features, arrays["label"], margin=hyper["margin"])
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(features.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 20.0])
@pytest.mark.parametrize("labels", [UNEQUAL, [0, 0, 0, 1], [0, 1, 2, 3], [5, 5]])
def test_plasticity_matches_the_loops(scale, labels):
    features = draw(len(labels), scale=scale)
    loss = plasticity_loss(features, torch.tensor(labels))
    assert loss.item() == pytest.approx(plasticity(features.tolist(), labels, 0.3), rel=1e-9, abs=1e-9)


def test_plasticity_gradient():
    labels = torch.tensor(UNEQUAL)
    assert torch.autograd.gradcheck(lambda x: plasticity_loss(x, labels), draw(12).requires_grad_())


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e3, 1e15])
def test_plasticity_stays_finite_where_the_official_code_overflows(scale):
    features, labels = draw(12, width=64, scale=scale).float().requires_grad_(), torch.tensor(UNEQUAL)
    loss = plasticity_loss(features, labels)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()
    if scale == 1e3:  # log(1 + exp(d)) is d: the plain triplet loss
        assert torch.log(1 + torch.exp(torch.cdist(features, features))).isinf().any()
        plain = [list(map(float, row)) for row in features.tolist()]
        expected = 0.0
        for anchor, own in zip(plain, UNEQUAL, strict=True):
            to = [distance(anchor, other, "euclidean") for other in plain]
            farthest = max(d for d, label in zip(to, UNEQUAL, strict=True) if label == own)
            nearest = min(d for d, label in zip(to, UNEQUAL, strict=True) if label != own)
            expected += max(0.0, max(farthest, math.log(2)) - nearest + 0.3) / 12
        assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_plasticity_of_one_identity_is_zero():
    features = draw(4).requires_grad_()
    loss = plasticity_loss(features, torch.full((4,), 3))
    loss.backward()
    assert loss.item() == 0 and features.grad.eq(0).all()


def test_plasticity_bad_arguments():
    with pytest.raises(ValueError, match="features must be"):
        plasticity_loss(draw(3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="labels must be"):
        plasticity_loss(draw(3), torch.zeros(3, 1))


# Stability


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 20), st.floats(1e-6, 1e6))
@settings(deadline=None, max_examples=40)
def test_stability_matches_the_loops(vertices, width, seed, scale):
    new, old = draw(vertices, width, seed), draw(vertices, width, seed + 1, scale)
    loss = stability_loss(new, old)
    pairs = zip(new.tolist(), old.tolist(), strict=True)
    expected = sum(distance(unit(a), unit(b), "sqeuclidean") for a, b in pairs) / vertices
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert 0 <= loss <= 4 + 1e-12


def test_stability_of_close_vertices_keeps_its_digits():
    old = draw(5, width=2048, seed=1)
    step = 1e-6 * draw(5, width=2048, seed=2)
    sideways = step - (step * old).sum(1, keepdim=True) / old.square().sum(1, keepdim=True) * old
    angle = sideways.norm(dim=1) / old.norm(dim=1)
    loss = stability_loss(old + sideways, old)
    assert loss.item() == pytest.approx(angle.square().mean().item(), rel=1e-6)
    same = old.clone().requires_grad_()
    stability_loss(same, old).backward()
    assert same.grad.eq(0).all()


def test_stability_sees_directions_only_and_stays_finite_at_zero():
    new, old = draw(5).requires_grad_(), draw(5, seed=1)
    torch.testing.assert_close(stability_loss(7 * new, old / 3), stability_loss(new, old))
    assert torch.autograd.gradcheck(lambda x: stability_loss(x, old), new)
    dead = torch.zeros(5, 4, requires_grad=True)
    loss = stability_loss(dead, old)
    loss.backward()
    assert loss.item() == pytest.approx(1) and dead.grad.isfinite().all()


def test_stability_teacher_gets_no_gradient():
    new, old = draw(5).requires_grad_(), draw(5, seed=1).requires_grad_()
    stability_loss(new, old).backward()
    assert old.grad is None


def test_stability_shapes_must_be_the_same():
    with pytest.raises(ValueError, match="must both be"):
        stability_loss(draw(5), draw(4))


# Label smoothing


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothing_over_the_head_is_that_of_torch(smoothing):
    logits, labels = draw(6, 5).requires_grad_(), torch.tensor([0, 4, 1, 1, 2, 3])
    loss = smoothed_cross_entropy(logits, labels, smoothing=smoothing)
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, label_smoothing=smoothing))
    assert torch.autograd.gradcheck(lambda x: smoothed_cross_entropy(x, labels, smoothing=smoothing), logits)


def test_smoothing_over_more_classes_than_the_head_has_as_in_the_official_code():
    logits, labels = draw(6, 500), torch.tensor([0, 499, 1, 1, 2, 3])
    targets = torch.full((6, 500), 0.1 / 2494, dtype=torch.float64)
    targets[torch.arange(6), labels] += 0.9
    assert targets.sum(1).mean().item() == pytest.approx(0.92, abs=1e-3)
    expected = -(targets * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(smoothed_cross_entropy(logits, labels, num_classes=2494), expected)
    assert abs(expected - smoothed_cross_entropy(logits, labels)) > 0.1
