import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import dot, draw, golden_names, load_golden
from torch.nn import functional as F

from lreid.losses import asymmetric_supcon_loss


def supcon(projections, labels, current, temperature, base_temperature):
    """The loss by nested loops; an anchor without positive counts as 0."""
    rows = [(view, label) for views, label in zip(projections, labels, strict=True) for view in views]
    total = 0.0
    for anchor, (z, label) in enumerate(rows):
        others = [row for place, row in enumerate(rows) if place != anchor]
        cosines = [dot(z, other) for other, _ in others]
        positives = [c for c, (_, other) in zip(cosines, others, strict=True) if other == label]
        if label in current and positives:
            denominator = math.log(sum(math.exp(c / temperature) for c in cosines))
            total -= sum(c / temperature - denominator for c in positives) / len(positives)
    return total / len(rows) * temperature / base_temperature


@pytest.mark.parametrize("name", golden_names("co2l_asymsupcon"))
def test_anchor_without_positive_is_ignored(name):
    hyper, arrays = load_golden(name)
    raw, temperatures = arrays["raw"].requires_grad_(), {key: hyper[key] for key in ("temperature", "base_temperature")}
    loss = asymmetric_supcon_loss(F.normalize(raw, dim=2), arrays["label"], arrays["cur"], **temperatures)
    loss.backward()
    factor = hyper["temperature"] / hyper["base_temperature"]
    expected = arrays["per_anchor"].nansum() / len(arrays["per_anchor"]) * factor
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-12, atol=1e-14)
    assert raw.grad.isfinite().all()


@pytest.mark.parametrize("name", golden_names("co2l_asymsupcon"))
def test_printed_sum_is_the_scaled_mean(name):
    hyper, arrays = load_golden(name)
    temperature = hyper["temperature"]
    loss = asymmetric_supcon_loss(
        arrays["z"], arrays["label"], arrays["cur"], temperature=temperature, base_temperature=temperature
    )
    printed = arrays["per_anchor"].nansum()  # loss_paper_sum, or where that is NaN its other anchors
    torch.testing.assert_close(loss * arrays["z"][..., 0].numel(), printed, rtol=1e-9, atol=1e-12)


@given(
    st.lists(st.integers(0, 4), max_size=8),
    st.integers(1, 3),
    st.sets(st.integers(0, 5)),
    st.sampled_from([0.1, 0.5, 2.0]),
    st.integers(0, 9),
)
def test_loss_matches_loops(labels, views, current, temperature, seed):
    projections = F.normalize(draw(len(labels), views, 5, seed=seed), dim=2).requires_grad_()
    loss = asymmetric_supcon_loss(projections, torch.tensor(labels).long(), current, temperature=temperature)
    loss.backward()
    assert projections.grad.isfinite().all()
    if labels:
        expected = supcon(projections.tolist(), labels, current, temperature, 0.07)
        assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert loss.item() == 0
