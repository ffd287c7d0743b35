import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import draw, golden_names, load_golden, softmax

from lreid.losses import pad_viskd_loss


@pytest.mark.parametrize("name", golden_names("pad_viskd"))
def test_golden(name):
    hyper, arrays = load_golden(name)
    levels = range(sum(key.startswith("feat_s") for key in arrays))
    new = [arrays[f"feat_s{level}"].requires_grad_() for level in levels]
    old = [arrays[f"feat_t{level}"].requires_grad_() for level in levels]
    logits = arrays["logits_s"].requires_grad_()
    weights = {"feature_weight": hyper["lambda_feat"], "logit_weight": hyper["lambda_logit"]}
    loss = pad_viskd_loss(new, old, logits, arrays["logits_t"], temperature=hyper["T"], **weights)
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(new[0].grad, arrays["grad_feat0"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(logits.grad, arrays["grad_logits"], rtol=1e-9, atol=1e-12)
    assert all(each.grad is None for each in old)


@given(st.integers(1, 4), st.integers(1, 3), st.floats(0.5, 5), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_matches_the_loops(rows, levels, temperature, seed):
    new = [draw(rows, 2 + level, seed + level) for level in range(levels)]
    old = [draw(rows, 2 + level, seed + level + 10) for level in range(levels)]
    logits, old_logits = draw(rows, 4, seed + 20), draw(rows, 4, seed + 21)
    squares = 0.0
    for a, b in zip(new, old, strict=True):
        pairs = list(zip(a.flatten().tolist(), b.flatten().tolist(), strict=True))
        squares += sum((x - y) ** 2 for x, y in pairs) / len(pairs) / levels
    divergence = 0.0
    for row, target in zip(logits.tolist(), old_logits.tolist(), strict=True):
        q, p = (softmax(dict(enumerate(each)), temperature) for each in (row, target))
        divergence += sum(p[column] * math.log(p[column] / q[column]) for column in p) * temperature**2 / rows
    loss = pad_viskd_loss(new, old, logits, old_logits, feature_weight=0.3, logit_weight=0.6, temperature=temperature)
    assert loss.item() == pytest.approx(0.3 * squares + 0.6 * divergence)


def test_equal_models_have_no_loss_and_gradients_are_right():
    features, logits = [draw(3), draw(3, 4)], draw(3, 6)
    assert abs(pad_viskd_loss(features, features, logits, logits).item()) < 1e-14
    others = [draw(3, 5, 1), draw(3, 4, 1)]
    assert torch.autograd.gradcheck(
        lambda a, b, z: pad_viskd_loss([a, b], others, z, draw(3, 6, 1)),
        (draw(3).requires_grad_(), draw(3, 4).requires_grad_(), draw(3, 6).requires_grad_()),
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pad_viskd_loss([], [], torch.ones(2, 3), torch.ones(2, 3)), "one or more"),
        (lambda: pad_viskd_loss([torch.ones(2, 3)], [], torch.ones(2, 3), torch.ones(2, 3)), "as many"),
        (
            lambda: pad_viskd_loss([torch.ones(2, 3)], [torch.ones(2, 4)], torch.ones(2, 3), torch.ones(2, 3)),
            "features of student",
        ),
        (lambda: pad_viskd_loss([torch.ones(2, 3)] * 1, [torch.ones(2, 3)], torch.ones(2, 3), torch.ones(3, 3)), "C"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
