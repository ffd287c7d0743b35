import pytest
import torch
from oracles import UNEQUAL, dmml, draw, golden_names, load_golden

from lreid.losses import dmml_loss

PRINTED = [name for name in golden_names("dmml") if "loss_paper_fixed_sign_sum" in load_golden(name)[1]]


@pytest.mark.parametrize("name", PRINTED)
def test_printed_form_with_corrected_sign(name):
    hyper, arrays = load_golden(name)
    options = {"metric": "euclidean", "clamp": False, "feature_penalty": 0}
    total = dmml_loss(arrays["feature"], arrays["label"], hyper["n_s"], **options) * hyper["N"] * hyper["n_q"]
    torch.testing.assert_close(total, arrays["loss_paper_fixed_sign_sum"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("mining", ["hard", "center"])
@pytest.mark.parametrize("clamp", [True, False])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_unequal_classes_match_the_loops(metric, mining, clamp, scale):
    features = draw(12, 4, scale=scale)
    options = {"metric": metric, "mining": mining, "clamp": clamp, "margin": 0.5, "feature_penalty": 0.01}
    loss = dmml_loss(features, torch.tensor(UNEQUAL), 2, **options)
    assert loss.item() == pytest.approx(dmml(features.tolist(), UNEQUAL, 2, **options), rel=1e-12)


def test_no_gradient_through_a_clamped_negative():
    # Queries 2 and 5 stand nearer than the margin to the supports of the other class.
    features = torch.tensor([[0.0], [0.1], [0.2], [0.3], [0.4], [0.5]], dtype=torch.float64, requires_grad=True)
    dmml_loss(features, torch.tensor([0, 0, 0, 1, 1, 1]), 2, feature_penalty=0).backward()
    assert features.grad[1].item() == features.grad[4].item() == 0  # never the farthest of their own class
    assert features.grad[0].item() == pytest.approx(-features.grad[2].item())


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_single_class_has_only_the_penalty(metric):
    features = draw(4, 4).requires_grad_()
    loss = dmml_loss(features, torch.full((4,), 7), 3, metric=metric)
    loss.backward()
    assert loss.item() == pytest.approx(5e-4 * features.square().sum().item() / 4)
    torch.testing.assert_close(features.grad, 2 * 5e-4 / 4 * features.detach())
