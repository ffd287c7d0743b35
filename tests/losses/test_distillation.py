import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import UNEQUAL, distillation, draw, golden_names, load_golden
from test_golden import episode_labels

from lreid.losses import decoupled_distillation_loss, dwopp_loss, dwpp_loss

LOSSES = {"dwpp": dwpp_loss, "dwopp": dwopp_loss}
PRINTED = [name for start in LOSSES for name in golden_names(start) if "loss_paper_sum_euclid" in load_golden(name)[1]]


@pytest.mark.parametrize("temperature", [10.0, 300.0])  # 300: soft enough for a gradient to pass
def test_gradient_is_finite_where_the_official_one_is_nan(temperature):
    # Saturated at temperature 1, so the official float32 root of the softmax underflows.
    hyper, arrays = load_golden("dwpp_T10_underflow_f32")
    assert not arrays["grad"].isfinite().any()
    single, double = (arrays["feat_new"].clone().requires_grad_(), arrays["feat_new"].double().requires_grad_())
    labels, supports = episode_labels(hyper), hyper["n_s"]
    for student in (single, double):
        loss = dwpp_loss(student, arrays["feat_old"], labels, supports, temperature=temperature)
        loss.backward()
    features = single.tolist(), arrays["feat_old"].tolist()
    expected = distillation(*features, labels.tolist(), supports, temperature, 1e-4, "sqeuclidean", True)
    assert loss.item() == pytest.approx(expected, rel=1e-6, abs=1e-12)
    torch.testing.assert_close(single.grad, double.grad.float())
    assert temperature == 10 or single.grad.abs().max() > 0


@pytest.mark.parametrize("name", PRINTED)
def test_printed_form_of_the_paper(name):
    hyper, arrays = load_golden(name)
    options = {"temperature": hyper["T"], "metric": "euclidean", "prob_floor": 0.0}
    student, teacher = arrays["feat_new"].double(), arrays["feat_old"]
    loss = LOSSES[name.split("_")[0]](student, teacher, episode_labels(hyper), hyper["n_s"], **options)
    torch.testing.assert_close(loss * hyper["N"], arrays["loss_paper_sum_euclid"].double(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("prob_floor", [0.0, 1e-4, 0.1])
def test_unequal_classes_match_the_loops(name, metric, temperature, prob_floor):
    student, teacher = draw(12, 4, scale=0.7), draw(12, 4, seed=1, scale=0.7)
    options = {"temperature": temperature, "prob_floor": prob_floor, "metric": metric}
    loss = LOSSES[name](student, teacher, torch.tensor(UNEQUAL), 2, **options)
    expected = distillation(student.tolist(), teacher.tolist(), UNEQUAL, 2, **options, positives=name == "dwpp")
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_entries_below_the_floor_have_no_gradient():
    # One query of class 0, prototypes of classes 1 and 2; class 2 is hopelessly far for the student only.
    student = torch.tensor([[0.0], [0.0], [1.0], [9.0]], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[0.0], [0.0], [1.0], [1.2]], dtype=torch.float64)
    loss = dwopp_loss(student, teacher, torch.tensor([0, 0, 1, 2]), 1)
    p_old = torch.tensor([-1.0, -1.44]).softmax(0)
    assert loss.item() == pytest.approx((p_old * p_old.log() - p_old * torch.tensor([1.0, 1e-4]).log()).sum().item())
    loss.backward()
    assert student.grad.abs().max() < 1e-12


TARGETS = torch.tensor([0, 3, 1, 1, 2])


@given(st.integers(0, 50), st.floats(0.5, 5), st.floats(0.1, 20))
def test_decoupled_parts_add_up_to_dwpp(seed, temperature, scale):
    student, teacher = (draw(5, 4, seed=each, scale=scale) for each in (seed, seed + 1))
    p_old = (teacher / temperature).softmax(1)
    whole = p_old * ((teacher / temperature).log_softmax(1) - (student / temperature).log_softmax(1))
    rest = 1 - p_old[torch.arange(5), TARGETS]
    parts = decoupled_distillation_loss(student, teacher, TARGETS, alpha=1, beta=rest, temperature=temperature)
    torch.testing.assert_close(parts, whole.sum(1).mean() * temperature**2, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_decoupled_is_exact_when_saturated(scale):
    student, teacher = draw(5, 4, scale=scale), draw(5, 4, seed=1, scale=scale)
    expected = 0.0
    for mine, old, target in zip(student, teacher, TARGETS.tolist(), strict=True):
        others = [column for column in range(4) if column != target]
        # The teacher's winner has all the probability: each KL is minus the student's log-probability of it.
        wins = old.argmax().item() == target
        split = torch.stack([mine[target], mine[others].logsumexp(0)]).log_softmax(0)
        expected -= split[0 if wins else 1] + mine[others].log_softmax(0)[old[others].argmax()]
    loss = decoupled_distillation_loss(student.float(), teacher.float(), TARGETS, alpha=1, beta=1)
    assert loss.item() == pytest.approx(expected.item() / 5, rel=1e-6)
