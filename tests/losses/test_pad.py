import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import draw, floored_kl, softmax

from lreid.losses import pad_viskd_loss


@given(st.integers(1, 4), st.integers(1, 3), st.floats(0.5, 5), st.integers(0, 9))
def test_loss_matches_loops(rows, levels, temperature, seed):
    new = [draw(rows, 2 + level, seed=seed + level) for level in range(levels)]
    old = [draw(rows, 2 + level, seed=seed + level + 10) for level in range(levels)]
    logits, old_logits = draw(rows, 4, seed=seed + 20), draw(rows, 4, seed=seed + 21)
    squares = 0.0
    for a, b in zip(new, old, strict=True):
        pairs = list(zip(a.flatten().tolist(), b.flatten().tolist(), strict=True))
        squares += sum((x - y) ** 2 for x, y in pairs) / len(pairs) / levels
    divergence = 0.0
    for row, target in zip(logits.tolist(), old_logits.tolist(), strict=True):
        q, p = (softmax(each, temperature) for each in (row, target))
        divergence += floored_kl(p, q) * temperature**2 / rows
    loss = pad_viskd_loss(new, old, logits, old_logits, feature_weight=0.3, logit_weight=0.6, temperature=temperature)
    assert loss.item() == pytest.approx(0.3 * squares + 0.6 * divergence)


@pytest.mark.parametrize("teacher", [[], [torch.ones(2, 4)], [torch.ones(2, 3)] * 2])
def test_mismatched_features_are_refused(teacher):
    with pytest.raises(ValueError, match="student"):
        pad_viskd_loss([torch.ones(2, 3)], teacher, torch.ones(2, 3), torch.ones(2, 3))
