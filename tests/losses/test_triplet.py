import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import UNEQUAL, draw, hardest_gaps, unit

from lreid.losses import batch_hard_triplet_loss


def triplet(features, labels, margin, normalize=False):
    """The loss by nested loops."""
    gaps = hardest_gaps([unit(feature) for feature in features] if normalize else features, labels)
    terms = [math.log1p(math.exp(gap)) if margin is None else max(0.0, gap + margin) for gap in gaps if gap is not None]
    return sum(terms) / len(labels)


@pytest.mark.parametrize("margin", [0.0, 0.3, 5.0, None])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("labels", [UNEQUAL, [0, 0, 0, 0, 1, 1, 2, 2], [4, 4, 4, -1], [0, 1, 2, 3]])
def test_any_counts_match_the_loops(margin, normalize, labels):
    features = draw(len(labels), 4)
    loss = batch_hard_triplet_loss(features, torch.tensor(labels), margin=margin, normalize=normalize)
    expected = triplet(features.tolist(), labels, margin, normalize)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=14), st.integers(0, 9), st.floats(-20, 20))
def test_any_labels_match_loops_and_shift_is_ignored(labels, seed, shift):
    features = draw(len(labels), 4, seed=seed)
    loss = batch_hard_triplet_loss(features + shift, torch.tensor(labels), margin=1.0)
    assert loss.item() == pytest.approx(triplet(features.tolist(), labels, 1.0), rel=1e-6, abs=1e-6)


def test_zero_features_have_no_gradient_when_normalised():
    features = draw(12, 4)
    features[0] = 0
    features.requires_grad_()
    batch_hard_triplet_loss(features, torch.tensor(UNEQUAL), margin=None, normalize=True).backward()
    assert features.grad.abs().max() < 10
