import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import dmml, golden_names, load_golden

from lreid.losses import dmml_loss

UNEQUAL = [2, 0, 1, 2, 0, 2, 1, 0, 0, 2, 2, 3]  # class 1 has no query at 2 supports, class 3 one image only


def draw(labels, width=4, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(len(labels), width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", golden_names("dmml"))
def test_golden(name):
    hyper, arrays = load_golden(name)
    features = arrays["feature"].requires_grad_()
    loss = dmml_loss(
        features,
        arrays["label"],
        hyper["n_s"],
        margin=hyper["margin"],
        metric="cosine" if hyper["dmml_dist_metric"] == "cosine" else "sqeuclidean",
        mining="center" if hyper["distance_mode"] == "center_support" else "hard",
    )
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=0)
    torch.testing.assert_close(features.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in golden_names("dmml") if "loss_paper" in str(load_golden(name)[1])])
def test_printed_form_with_its_sign_put_right(name):
    hyper, arrays = load_golden(name)
    loss = dmml_loss(
        arrays["feature"], arrays["label"], hyper["n_s"], metric="euclidean", clamp=False, feature_penalty=0
    )
    total = loss * hyper["N"] * hyper["n_q"]
    torch.testing.assert_close(total, arrays["loss_paper_fixed_sign_sum"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("mining", ["hard", "center"])
@pytest.mark.parametrize("clamp", [True, False])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_unequal_classes_match_the_loops(metric, mining, clamp, scale):
    features = draw(UNEQUAL, scale=scale)
    options = {"metric": metric, "mining": mining, "clamp": clamp, "margin": 0.5, "feature_penalty": 0.01}
    loss = dmml_loss(features, torch.tensor(UNEQUAL), 2, **options)
    assert loss.item() == pytest.approx(dmml(features.tolist(), UNEQUAL, 2, **options), rel=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("mining", ["hard", "center"])
def test_gradient(metric, mining):
    features = draw(UNEQUAL).requires_grad_()
    labels = torch.tensor(UNEQUAL)
    assert torch.autograd.gradcheck(lambda x: dmml_loss(x, labels, 2, metric=metric, mining=mining), features)


@given(st.permutations(range(len(UNEQUAL))))
@settings(deadline=None, max_examples=30)
def test_only_the_order_within_a_class_counts(order):
    labels = torch.tensor(UNEQUAL)[order]  # classes mixed in another way …
    features = torch.empty(len(UNEQUAL), 4, dtype=torch.float64)
    for label in range(4):  # … with the rows of each in their old order
        features[labels == label] = draw(UNEQUAL)[torch.tensor(UNEQUAL) == label]
    expected = dmml_loss(draw(UNEQUAL), torch.tensor(UNEQUAL), 2)
    torch.testing.assert_close(dmml_loss(features, labels, 2), expected)


@given(st.floats(-50, 50), st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_distances_do_not_see_a_shift(shift, seed):
    features, labels = draw(UNEQUAL, seed=seed), torch.tensor(UNEQUAL)
    expected = dmml_loss(features, labels, 2, feature_penalty=0)
    shifted = dmml_loss(features + shift, labels, 2, feature_penalty=0)
    torch.testing.assert_close(shifted, expected, rtol=1e-9, atol=1e-11)


def test_no_gradient_through_a_clamped_negative():
    # Queries 2 and 5 stand nearer than the margin to the supports of the other class.
    features = torch.tensor([[0.0], [0.1], [0.2], [0.3], [0.4], [0.5]], dtype=torch.float64, requires_grad=True)
    dmml_loss(features, torch.tensor([0, 0, 0, 1, 1, 1]), 2, feature_penalty=0).backward()
    assert features.grad[1].item() == features.grad[4].item() == 0  # never the farthest of their own class
    assert features.grad[0].item() == pytest.approx(-features.grad[2].item())


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_one_class_leaves_the_penalty(metric):
    features = draw([7] * 4).requires_grad_()
    loss = dmml_loss(features, torch.full((4,), 7), 3, metric=metric)
    loss.backward()
    assert loss.item() == pytest.approx(5e-4 * features.square().sum().item() / 4)
    torch.testing.assert_close(features.grad, 2 * 5e-4 / 4 * features.detach())


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 300.0])
def test_float32_stays_finite(metric, scale):
    features = draw(UNEQUAL, width=64, scale=scale).float().requires_grad_()
    loss = dmml_loss(features, torch.tensor(UNEQUAL), 2, metric=metric)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite() and features.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    features = draw(UNEQUAL).to(dtype).requires_grad_()
    loss = dmml_loss(features, torch.tensor(UNEQUAL), 2)
    loss.backward()
    assert loss.dtype == torch.float32
    assert features.grad.dtype == dtype
    assert loss.item() == pytest.approx(dmml_loss(features.detach().double(), torch.tensor(UNEQUAL), 2).item())


def test_autocast_changes_nothing():
    features = draw(UNEQUAL).float()
    expected = dmml_loss(features, torch.tensor(UNEQUAL), 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert dmml_loss(features, torch.tensor(UNEQUAL), 2).item() == expected.item()


@pytest.mark.parametrize(
    ("features", "labels", "num_support", "options", "message"),
    [
        (torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), 2, {}, "no query"),
        (torch.ones(3, 2), torch.tensor([0, 0, 1, 1]), 1, {}, "features must be"),
        (torch.ones(4), torch.tensor([0, 0, 1, 1]), 1, {}, "features must be"),
        (torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), 1, {"metric": "l1"}, "unknown metric 'l1'"),
        (torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), 1, {"mining": "soft"}, "unknown mining 'soft'"),
    ],
)
def test_bad_arguments(features, labels, num_support, options, message):
    with pytest.raises(ValueError, match=message):
        dmml_loss(features, labels, num_support, **options)


def test_nan_features_show_in_the_loss():
    features = draw(UNEQUAL)
    features[0, 0] = torch.nan
    for metric in ("sqeuclidean", "euclidean", "cosine"):
        assert dmml_loss(features, torch.tensor(UNEQUAL), 2, metric=metric).isnan()
