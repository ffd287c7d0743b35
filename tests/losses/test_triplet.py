import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import distance, golden_names, load_golden, unit
from torch.nn import functional as F

from lreid.losses import batch_hard_triplet_loss

UNEQUAL = [2, 0, 1, 2, 0, 2, 1, 0, 0, 2, 2, 3]  # five, four, two and one image


def draw(labels, width=4, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(len(labels), width, generator=generator, dtype=torch.float64)


def triplet(features, labels, margin, normalize=False):
    """The loss by nested loops."""
    features = [unit(feature) for feature in features] if normalize else features
    total = 0.0
    for anchor, own in zip(features, labels, strict=True):
        to = [
            (max(distance(anchor, other, "euclidean"), 1e-6), label)
            for other, label in zip(features, labels, strict=True)
        ]
        others = [d for d, label in to if label != own]
        if others:
            gap = max(d for d, label in to if label == own) - min(others)
            total += math.log1p(math.exp(gap)) if margin is None else max(0.0, gap + margin)
    return total / len(labels)


def official_mining(features, labels):
    """Mining as in the official code, which puts the masked distances in rows of one length."""
    distances = torch.cdist(features, features).clamp(min=1e-6)
    same = labels[:, None] == labels
    rows = len(labels)
    own, other = distances[same].view(rows, -1).max(1).values, distances[~same].view(rows, -1).min(1).values
    return (own - other + 0.3).clamp(min=0).mean()


@pytest.mark.parametrize("name", golden_names("bot"))
def test_golden(name):
    hyper, arrays = load_golden(name)
    features = arrays["feature"].requires_grad_()
    loss = batch_hard_triplet_loss(features, arrays["label"], margin=hyper["margin"], normalize=hyper["normalize"])
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss_triplet"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(features.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("soft_triplet"))
def test_golden_soft_margin(name):
    _, arrays = load_golden(name)
    features = arrays["feat"].requires_grad_()
    loss = batch_hard_triplet_loss(features, arrays["labels"], margin=None, normalize=True)
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(features.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("bot"))
def test_golden_label_smoothing_is_that_of_torch(name):
    hyper, arrays = load_golden(name)
    logits = arrays["logits"].requires_grad_()
    loss = F.cross_entropy(logits, arrays["label"], label_smoothing=hyper["epsilon"])
    loss.backward()
    # The official code builds its targets in float32.
    torch.testing.assert_close(loss.detach(), arrays["loss_ce"], rtol=1e-6, atol=0)
    torch.testing.assert_close(logits.grad, arrays["grad_logits"], rtol=1e-6, atol=1e-7)
    total = loss.detach() + batch_hard_triplet_loss(arrays["feature"], arrays["label"], normalize=hyper["normalize"])
    torch.testing.assert_close(total, arrays["loss"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("margin", [0.0, 0.3, 5.0, None])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("labels", [UNEQUAL, [0, 0, 0, 0, 1, 1, 2, 2], [4, 4, 4, -1], [0, 1, 2, 3]])
def test_any_counts_match_the_loops(margin, normalize, labels):
    features = draw(labels)
    loss = batch_hard_triplet_loss(features, torch.tensor(labels), margin=margin, normalize=normalize)
    expected = triplet(features.tolist(), labels, margin, normalize)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_unequal_counts_where_the_official_code_is_wrong_or_raises():
    equal, unequal, raising = ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 1])
    features, labels = draw(equal), torch.tensor(equal)
    torch.testing.assert_close(batch_hard_triplet_loss(features, labels), official_mining(features, labels))
    features, labels = draw(unequal), torch.tensor(unequal)
    loss = batch_hard_triplet_loss(features, labels)
    assert loss.item() == pytest.approx(triplet(features.tolist(), unequal, 0.3))
    assert abs(loss - official_mining(features, labels)) > 0.01
    with pytest.raises(RuntimeError, match="invalid for input"):
        official_mining(draw(raising), torch.tensor(raising))
    assert batch_hard_triplet_loss(draw(raising), torch.tensor(raising)) > 0


@pytest.mark.parametrize("margin", [0.3, None])
@pytest.mark.parametrize("labels", [[7, 7, 7], [7]])
def test_one_identity_is_zero_with_no_gradient(margin, labels):
    # The official code raises: there is no other identity to take the nearest image of.
    features = draw(labels).float().requires_grad_()
    loss = batch_hard_triplet_loss(features, torch.tensor(labels), margin=margin)
    loss.backward()
    assert loss.item() == 0
    assert features.grad.eq(0).all()


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=14),
    st.integers(0, 9),
    st.permutations(range(14)),
    st.floats(-20, 20),
)
@settings(deadline=None, max_examples=50)
def test_neither_order_nor_names_nor_a_shift_count(labels, seed, order, shift):
    features, labels = draw(labels, seed=seed), torch.tensor(labels)
    expected = batch_hard_triplet_loss(features, labels, margin=1.0)
    assert expected.item() == pytest.approx(triplet(features.tolist(), labels.tolist(), 1.0), rel=1e-9, abs=1e-14)
    order = torch.tensor([row for row in order if row < len(labels)])
    changed = batch_hard_triplet_loss(features[order] + shift, 10 - 3 * labels[order], margin=1.0)
    torch.testing.assert_close(changed, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("margin", [0.3, None])
@pytest.mark.parametrize("normalize", [False, True])
def test_gradient(margin, normalize):
    labels = torch.tensor(UNEQUAL)
    assert torch.autograd.gradcheck(
        lambda x: batch_hard_triplet_loss(x, labels, margin=margin, normalize=normalize), draw(UNEQUAL).requires_grad_()
    )


@pytest.mark.parametrize("margin", [0.3, None])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e3, 1e15])
def test_float32_stays_finite(margin, normalize, scale):
    features = draw(UNEQUAL, width=64, scale=scale).float().requires_grad_()
    loss = batch_hard_triplet_loss(features, torch.tensor(UNEQUAL), margin=margin, normalize=normalize)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite() and features.grad.isfinite().all()
    if scale > 1 and margin and not normalize:
        assert loss.item() == pytest.approx(triplet(features.tolist(), UNEQUAL, margin), rel=1e-6)


def test_dead_features_have_no_gradient_when_normalised():
    features = draw(UNEQUAL)
    features[0] = 0
    features.requires_grad_()
    batch_hard_triplet_loss(features, torch.tensor(UNEQUAL), margin=None, normalize=True).backward()
    assert features.grad.abs().max() < 10


def test_repeated_images():
    features = draw([0, 0, 1, 1])
    features[1], features[3] = features[0], features[2]
    features.requires_grad_()
    loss = batch_hard_triplet_loss(features, torch.tensor([0, 0, 1, 1]), margin=10.0)
    loss.backward()
    assert loss.item() == pytest.approx(10 - (features[0] - features[2]).norm().item(), abs=1e-5)
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    features = draw(UNEQUAL).to(dtype)
    loss = batch_hard_triplet_loss(features, torch.tensor(UNEQUAL))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(triplet(features.tolist(), UNEQUAL, 0.3))


def test_autocast_changes_nothing():
    features, labels = draw(UNEQUAL).float(), torch.tensor(UNEQUAL)
    expected = batch_hard_triplet_loss(features, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert batch_hard_triplet_loss(features, labels).item() == expected.item()


@pytest.mark.parametrize("labels", [UNEQUAL, [7] * 12])
@pytest.mark.parametrize("margin", [0.3, None])
def test_nan_features_show_in_the_loss(labels, margin):
    features = draw(labels)
    features[0, 0] = torch.nan
    assert batch_hard_triplet_loss(features, torch.tensor(labels), margin=margin).isnan()


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.ones(3, 2), torch.tensor([0, 0, 1, 1]), "features must be"),
        (torch.ones(4), torch.tensor([0, 0, 1, 1]), "features must be"),
        (torch.ones(4, 2), torch.tensor([[0], [0], [1], [1]]), "labels must be"),
    ],
)
def test_bad_arguments(features, labels, message):
    with pytest.raises(ValueError, match=message):
        batch_hard_triplet_loss(features, labels)
