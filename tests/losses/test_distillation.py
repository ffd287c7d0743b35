import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import distillation, golden_names, load_golden

from lreid.losses import decoupled_distillation_loss, dwopp_loss, dwpp_loss
from lreid.losses.episodes import prototype_logits, split_episode

LOSSES = {"dwpp": dwpp_loss, "dwopp": dwopp_loss}
UNEQUAL = [2, 0, 1, 2, 0, 2, 1, 0, 0, 2, 2, 3]  # class 1 has no query at 2 supports, class 3 one image only
EPISODES = [name for name in golden_names("dwpp") + golden_names("dwopp") if name != "dwpp_T10_underflow_f32"]


def draw(labels, width=4, seed=0, scale=0.7):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(len(labels), width, generator=generator, dtype=torch.float64)


def golden_call(name, features, **options):
    hyper, arrays = load_golden(name)
    labels = torch.arange(hyper["N"]).repeat_interleave(hyper["n_s"] + hyper["n_q"])
    metric = "cosine" if hyper["metric"] == "cosine" else "sqeuclidean"
    loss = LOSSES[name.split("_")[0]]
    settings = {"temperature": hyper["T"], "metric": metric, **options}
    return loss(features, arrays["feat_old"], labels, hyper["n_s"], **settings)


@pytest.mark.parametrize("name", EPISODES)
def test_golden(name):
    _, arrays = load_golden(name)
    features = arrays["feat_new"].requires_grad_()
    loss = golden_call(name, features)
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    largest = arrays["grad"].abs().max().item()
    torch.testing.assert_close(features.grad, arrays["grad"], rtol=0, atol=1e-9 * largest + 1e-12)


def test_golden_where_the_official_gradient_is_nan():
    # Saturated at temperature 1, so the official float32 root of the softmax underflows.
    _, arrays = load_golden("dwpp_T10_underflow_f32")
    assert not arrays["grad"].isfinite().any()
    for temperature in (10.0, 300.0):  # 300: soft enough for a gradient to pass
        single, double = (arrays["feat_new"].clone().requires_grad_(), arrays["feat_new"].double().requires_grad_())
        loss = golden_call("dwpp_T10_underflow_f32", single, temperature=temperature)
        loss.backward()
        golden_call("dwpp_T10_underflow_f32", double, temperature=temperature).backward()
        hyper, _ = load_golden("dwpp_T10_underflow_f32")
        labels = [label for label in range(hyper["N"]) for _ in range(hyper["n_s"] + 1)]
        expected = distillation(
            single.tolist(), arrays["feat_old"].tolist(), labels, hyper["n_s"], temperature, 1e-4, "sqeuclidean", True
        )
        assert loss.item() == pytest.approx(expected, rel=1e-6, abs=1e-12)
        torch.testing.assert_close(single.grad, double.grad.float())
    assert single.grad.abs().max() > 0


@pytest.mark.parametrize("name", [name for name in EPISODES if "loss_paper" in str(load_golden(name)[1])])
def test_printed_form(name):
    hyper, arrays = load_golden(name)
    loss = golden_call(name, arrays["feat_new"].double(), metric="euclidean", prob_floor=0.0)
    torch.testing.assert_close(loss.double() * hyper["N"], arrays["loss_paper_sum_euclid"], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("prob_floor", [0.0, 1e-4, 0.1])
def test_unequal_classes_match_the_loops(name, metric, temperature, prob_floor):
    student, teacher = draw(UNEQUAL), draw(UNEQUAL, seed=1)
    options = {"temperature": temperature, "prob_floor": prob_floor, "metric": metric}
    loss = LOSSES[name](student, teacher, torch.tensor(UNEQUAL), 2, **options)
    expected = distillation(student.tolist(), teacher.tolist(), UNEQUAL, 2, **options, positives=name == "dwpp")
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("temperature", [1.0, 10.0])
def test_gradient(name, metric, temperature):
    student, teacher, labels = draw(UNEQUAL).requires_grad_(), draw(UNEQUAL, seed=1), torch.tensor(UNEQUAL)
    loss = LOSSES[name]
    assert torch.autograd.gradcheck(
        lambda x: loss(x, teacher, labels, 2, temperature=temperature, metric=metric), student
    )


@pytest.mark.parametrize("name", LOSSES)
def test_teacher_gets_no_gradient(name):
    student, teacher = draw(UNEQUAL).requires_grad_(), draw(UNEQUAL, seed=1).requires_grad_()
    LOSSES[name](student, teacher, torch.tensor(UNEQUAL), 2).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() > 0


@pytest.mark.parametrize("name", LOSSES)
def test_teacher_may_be_wider(name):
    loss = LOSSES[name](draw(UNEQUAL), draw(UNEQUAL, width=6), torch.tensor(UNEQUAL), 2)
    assert loss > 0


@pytest.mark.parametrize("name", LOSSES)
@given(order=st.permutations(range(len(UNEQUAL))))
@settings(deadline=None, max_examples=20)
def test_only_the_order_within_a_class_counts(name, order):
    original = torch.tensor(UNEQUAL)
    labels = original[order]
    student, teacher = torch.empty(2, len(UNEQUAL), 4, dtype=torch.float64)
    for label in range(4):
        student[labels == label] = draw(UNEQUAL)[original == label]
        teacher[labels == label] = draw(UNEQUAL, seed=1)[original == label]
    expected = LOSSES[name](draw(UNEQUAL), draw(UNEQUAL, seed=1), original, 2)
    torch.testing.assert_close(LOSSES[name](student, teacher, labels, 2), expected)


@pytest.mark.parametrize("name", LOSSES)
@given(shift=st.floats(-50, 50), seed=st.integers(0, 20))
@settings(deadline=None, max_examples=20)
def test_distances_do_not_see_a_shift(name, shift, seed):
    student, teacher, labels = draw(UNEQUAL, seed=seed), draw(UNEQUAL, seed=seed + 1), torch.tensor(UNEQUAL)
    expected = LOSSES[name](student, teacher, labels, 2)
    shifted = LOSSES[name](student + shift, teacher - shift, labels, 2)
    torch.testing.assert_close(shifted, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_identical_models_lose_nothing(name, metric):
    student = draw(UNEQUAL).requires_grad_()
    loss = LOSSES[name](student, student, torch.tensor(UNEQUAL), 2, metric=metric)
    loss.backward()
    assert loss.item() == 0
    assert student.grad.abs().max() < 1e-14


@pytest.mark.parametrize(("name", "classes"), [("dwpp", 1), ("dwopp", 1), ("dwopp", 2)])
@pytest.mark.parametrize("prob_floor", [0.0, 1e-4])
def test_too_few_classes_give_zero_with_a_gradient(name, classes, prob_floor):
    labels = torch.arange(classes).repeat(4)
    student = draw(labels).requires_grad_()
    loss = LOSSES[name](student, draw(labels, seed=1), labels, 2, prob_floor=prob_floor)
    loss.backward()
    assert loss.item() == 0
    assert student.grad.tolist() == torch.zeros_like(student).tolist()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0, 50.0])  # at 50: squared distances around 3e5
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_float32_stays_finite_at_any_distance(name, scale, metric):
    labels = torch.arange(4).repeat_interleave(6)
    student = draw(labels, width=64, scale=scale).float().requires_grad_()
    teacher = draw(labels, width=64, scale=scale, seed=1).float()
    loss = LOSSES[name](student, teacher, labels, 5, temperature=10.0, metric=metric)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite() and student.grad.isfinite().all()


def test_entries_below_the_floor_have_no_gradient():
    # One query of class 0, prototypes of classes 1 and 2; class 2 is hopelessly far for the student only.
    student = torch.tensor([[0.0], [0.0], [1.0], [9.0]], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[0.0], [0.0], [1.0], [1.2]], dtype=torch.float64)
    loss = dwopp_loss(student, teacher, torch.tensor([0, 0, 1, 2]), 1)
    p_old = torch.tensor([-1.0, -1.44]).softmax(0)
    assert loss.item() == pytest.approx((p_old * p_old.log() - p_old * torch.tensor([1.0, 1e-4]).log()).sum().item())
    loss.backward()
    assert student.grad.abs().max() < 1e-12


def test_half_precision_and_autocast_change_nothing():
    student, teacher, labels = (draw(UNEQUAL).bfloat16(), draw(UNEQUAL, seed=1).bfloat16(), torch.tensor(UNEQUAL))
    for loss in LOSSES.values():
        expected = loss(student.double(), teacher.double(), labels, 2).item()
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(student, teacher, labels, 2)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"prob_floor": 1.0}, "prob_floor"),
        ({"prob_floor": -0.1}, "prob_floor"),
        ({"metric": "l1"}, "unknown metric"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        LOSSES[name](draw(UNEQUAL), draw(UNEQUAL), torch.tensor(UNEQUAL), 2, **options)


@pytest.mark.parametrize("name", LOSSES)
def test_bad_shapes(name):
    labels = torch.tensor(UNEQUAL)
    with pytest.raises(ValueError, match="no query"):
        LOSSES[name](draw(UNEQUAL), draw(UNEQUAL), labels, 9)
    with pytest.raises(ValueError, match="student must be"):
        LOSSES[name](draw(UNEQUAL)[:-1], draw(UNEQUAL), labels, 2)
    with pytest.raises(ValueError, match="teacher must be"):
        LOSSES[name](draw(UNEQUAL), draw(UNEQUAL)[:-1], labels, 2)


# Decoupled distillation


def logits(rows=5, classes=4, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)


TARGETS = torch.tensor([0, 3, 1, 1, 2])


@pytest.mark.parametrize("name", golden_names("dkd"))
def test_decoupled_golden(name):
    hyper, arrays = load_golden(name)
    student = arrays["logits_new"].requires_grad_()

    def call(alpha, beta):
        return decoupled_distillation_loss(
            student, arrays["logits_old"], arrays["target"], alpha=alpha, beta=beta, temperature=hyper["T"]
        )

    loss = call(hyper["alpha"], hyper["beta"])
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(student.grad, arrays["grad"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(call(1, 0).detach(), arrays["tckd"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(call(0, 1).detach(), arrays["nckd"], rtol=1e-9, atol=1e-12)


@given(st.integers(0, 50), st.floats(0.5, 5), st.floats(0.1, 20))
@settings(deadline=None, max_examples=30)
def test_decoupled_parts_add_up_to_the_whole(seed, temperature, scale):
    student, teacher = logits(seed=seed, scale=scale), logits(seed=seed + 1, scale=scale)
    p_old = (teacher / temperature).softmax(1)
    whole = p_old * ((teacher / temperature).log_softmax(1) - (student / temperature).log_softmax(1))
    rest = 1 - p_old[torch.arange(5), TARGETS]
    parts = decoupled_distillation_loss(student, teacher, TARGETS, alpha=1, beta=rest, temperature=temperature)
    torch.testing.assert_close(parts, whole.sum(1).mean() * temperature**2, rtol=1e-8, atol=1e-12)


def test_non_target_part_is_dwopp():
    student, teacher, labels = draw(UNEQUAL), draw(UNEQUAL, seed=1), torch.tensor(UNEQUAL)
    episode = split_episode(labels, 2)
    decoupled = decoupled_distillation_loss(
        prototype_logits(student, episode), prototype_logits(teacher, episode), episode.target, alpha=0, beta=1
    )
    torch.testing.assert_close(decoupled, dwopp_loss(student, teacher, labels, 2, prob_floor=0.0))


def test_decoupled_gradient():
    teacher = logits(seed=1)
    assert torch.autograd.gradcheck(
        lambda x: decoupled_distillation_loss(x, teacher, TARGETS, alpha=0.3, beta=0.7, temperature=2.0),
        logits().requires_grad_(),
    )


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_decoupled_stays_finite_and_exact_when_saturated(scale):
    student, teacher = logits(scale=scale).float().requires_grad_(), logits(seed=1, scale=scale).float()
    loss = decoupled_distillation_loss(student, teacher, TARGETS, alpha=1, beta=1)
    loss.backward()
    assert loss.isfinite() and student.grad.isfinite().all()
    mine, old = student.detach().double(), teacher.double()
    expected = 0.0
    for row, target in enumerate(TARGETS.tolist()):
        others = [column for column in range(4) if column != target]
        # The teacher's winner has all the probability: each KL is minus the student's log-probability of it.
        wins = old[row].argmax().item() == target
        split = torch.stack([mine[row, target], mine[row, others].logsumexp(0)]).log_softmax(0)
        best = old[row, others].argmax()
        expected -= split[0 if wins else 1] + mine[row, others].log_softmax(0)[best]
    assert loss.item() == pytest.approx(expected.item() / 5, rel=1e-6)


def test_decoupled_with_one_class_is_zero():
    student = torch.randn(3, 1, requires_grad=True)
    loss = decoupled_distillation_loss(student, torch.randn(3, 1), torch.zeros(3, dtype=torch.int64), alpha=1, beta=1)
    loss.backward()
    assert loss.item() == 0 and student.grad.abs().sum() == 0


def test_decoupled_teacher_gets_no_gradient():
    student, teacher = logits().requires_grad_(), logits(seed=1).requires_grad_()
    decoupled_distillation_loss(student, teacher, TARGETS, alpha=1, beta=1).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() > 0


def test_decoupled_bad_arguments():
    with pytest.raises(ValueError, match="must both be"):
        decoupled_distillation_loss(logits(), logits()[:, :3], TARGETS, alpha=1, beta=1)
    with pytest.raises(ValueError, match="student_logits must be"):
        decoupled_distillation_loss(logits(), logits(), TARGETS[:4], alpha=1, beta=1)
    with pytest.raises(ValueError, match="temperature"):
        decoupled_distillation_loss(logits(), logits(), TARGETS, alpha=1, beta=1, temperature=-1.0)
