import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import golden_names, load_golden, unit
from torch.nn import functional as F

from lreid.losses import asymmetric_supcon_loss

LABELS = [4, 1, 4, 7, 1, 4, 2]  # three, two and twice one image


def draw(images, views=2, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, views, width, generator=generator, dtype=torch.float64)


def supcon(projections, labels, current, temperature, base_temperature):
    """The loss by nested loops; an anchor without positive counts as 0."""
    rows = [(view, label) for views, label in zip(projections, labels, strict=True) for view in views]
    total = 0.0
    for anchor, (z, label) in enumerate(rows):
        others = [row for place, row in enumerate(rows) if place != anchor]
        cosines = [sum(a * b for a, b in zip(z, other, strict=True)) for other, _ in others]
        positives = [c for c, (_, other) in zip(cosines, others, strict=True) if other == label]
        if label in current and positives:
            denominator = math.log(sum(math.exp(c / temperature) for c in cosines))
            total -= sum(c / temperature - denominator for c in positives) / len(positives)
    return total / len(rows) * temperature / base_temperature


@pytest.mark.parametrize("name", golden_names("co2l_asymsupcon"))
def test_golden(name):
    hyper, arrays = load_golden(name)
    raw = arrays["raw"].requires_grad_()
    temperatures = {key: hyper[key] for key in ("temperature", "base_temperature")}
    loss = asymmetric_supcon_loss(F.normalize(raw, dim=2), arrays["label"], arrays["cur"], **temperatures)
    loss.backward()
    if arrays["loss"].isnan():  # an anchor without positive: 0 / 0
        factor = hyper["temperature"] / hyper["base_temperature"]
        expected = arrays["per_anchor"].nansum() / len(arrays["per_anchor"]) * factor
        torch.testing.assert_close(loss.detach(), expected, rtol=1e-12, atol=0)
        assert raw.grad.isfinite().all() and raw.grad.abs().max() > 0
        return
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(raw.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("co2l_asymsupcon"))
def test_the_printed_sum_is_the_mean_without_factor_times_the_rows(name):
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
@settings(deadline=None, max_examples=80)
def test_matches_the_loops(labels, views, current, temperature, seed):
    projections = F.normalize(draw(len(labels), views, seed=seed), dim=2).requires_grad_()
    loss = asymmetric_supcon_loss(projections, torch.tensor(labels).long(), current, temperature=temperature)
    loss.backward()
    assert projections.grad.isfinite().all()
    if labels:
        expected = supcon(projections.tolist(), labels, current, temperature, 0.07)
        assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert loss.item() == 0


@pytest.mark.parametrize("current", [[4, 1], (4, 1), {4, 1}, torch.tensor([1, 4]), range(1, 5, 3)])
def test_current_classes_come_in_any_form(current):
    z, labels = F.normalize(draw(7), dim=2), torch.tensor(LABELS)
    expected = supcon(z.tolist(), LABELS, [1, 4], 0.5, 0.07)
    loss = asymmetric_supcon_loss(z, labels, current, temperature=0.5)
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_past_images_are_negatives_but_no_anchors():
    z, labels = F.normalize(draw(3), dim=2), torch.tensor([0, 0, 1])
    near = z.clone()
    near[2] = near[0]  # the past image moves onto a current one
    loss, nearer = (asymmetric_supcon_loss(each, labels, [0], temperature=0.5) for each in (z, near))
    assert nearer > loss > 0
    alone = asymmetric_supcon_loss(z[:2], labels[:2], [0], temperature=0.5)
    assert loss * 6 > alone * 4  # sums over the same anchors, with more in the denominator


def test_plain_supcon_pulls_every_class():
    z, labels = F.normalize(draw(7), dim=2), torch.tensor(LABELS)
    loss = asymmetric_supcon_loss(z, labels, labels, temperature=0.5)
    assert loss.item() == pytest.approx(supcon(z.tolist(), LABELS, LABELS, 0.5, 0.07), rel=1e-9)


@given(st.permutations(range(7)), st.permutations(range(3)))
@settings(deadline=None, max_examples=20)
def test_neither_order_nor_names_count(images, views):
    z, labels = F.normalize(draw(7, 3), dim=2), torch.tensor(LABELS)
    expected = asymmetric_supcon_loss(z, labels, [4, 2], temperature=0.5)
    changed = asymmetric_supcon_loss(
        z[images][:, views], 10 - 3 * labels[images], [10 - 3 * 2, 10 - 3 * 4], temperature=0.5
    )
    torch.testing.assert_close(changed, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("views", [1, 2])
def test_gradient(views):
    labels = torch.tensor(LABELS)
    assert torch.autograd.gradcheck(
        lambda x: asymmetric_supcon_loss(F.normalize(x, dim=2), labels, [4, 7], temperature=0.5),
        draw(7, views).requires_grad_(),
    )


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_result_is_at_least_float32(dtype, precision):
    z = torch.tensor([[unit(view) for view in views] for views in draw(7).tolist()], dtype=torch.float64)
    expected = supcon(z.tolist(), LABELS, [1, 4], 0.05, 0.07)
    z = z.to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = asymmetric_supcon_loss(z, torch.tensor(LABELS), [1, 4], temperature=0.05)
    loss.backward()
    assert loss.dtype == torch.float32 and z.grad.isfinite().all()
    assert loss.item() == pytest.approx(expected, rel=precision)


def test_nan_shows_in_the_loss():
    z = draw(3)
    z[2, 0, 0] = torch.nan
    assert asymmetric_supcon_loss(z, torch.tensor([0, 0, 1]), [0], temperature=0.5).isnan()


@pytest.mark.parametrize(
    ("shape", "count", "temperatures", "message"),
    [
        ((4, 3), 4, {"temperature": 0.5}, "projections must be"),
        ((4, 2, 3), 5, {"temperature": 0.5}, "projections must be"),
        ((4, 2, 3), 4, {"temperature": 0.0}, "temperature must be above 0"),
        ((4, 2, 3), 4, {"temperature": 0.5, "base_temperature": 0.0}, "temperature must be above 0"),
    ],
)
def test_bad_arguments(shape, count, temperatures, message):
    with pytest.raises(ValueError, match=message):
        asymmetric_supcon_loss(torch.ones(shape), torch.zeros(count), [0], **temperatures)
