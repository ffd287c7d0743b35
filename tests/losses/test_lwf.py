import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import golden_names, load_golden

from lreid.losses import knowledge_distillation_loss


def logits(rows=5, classes=6, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)


def softmax(row, temperature):
    weights = [math.exp((value - max(row)) / temperature) for value in row]
    return [weight / sum(weights) for weight in weights]


def distillation(student, teacher, temperature):
    """The loss by nested loops; the new classes have the target 0."""
    total = 0.0
    for new, old in zip(student, teacher, strict=True):
        p_new, p_old = softmax(new, temperature), softmax(old, temperature)
        total -= sum(p * math.log(q) for p, q in zip(p_old, p_new[: len(p_old)], strict=True))
    return total / len(student) * temperature**2


@pytest.mark.parametrize("name", golden_names("aka_kd"))
def test_golden_over_all_heads(name):
    hyper, arrays = load_golden(name)
    student = arrays["logits_new"].requires_grad_()
    loss = knowledge_distillation_loss(student, arrays["logits_old"], temperature=hyper["T"])
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=0)
    torch.testing.assert_close(student.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("lwf_mammoth"))
def test_golden_over_old_classes_without_the_squared_temperature(name):
    hyper, arrays = load_golden(name)
    student = arrays["logits_new"].requires_grad_()
    old = student[:, : arrays["logits_old"].shape[1]]
    loss = knowledge_distillation_loss(old, arrays["logits_old"], temperature=hyper["T"]) / hyper["T"] ** 2
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=0)
    torch.testing.assert_close(student.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@given(st.integers(1, 6), st.integers(0, 50), st.floats(0.5, 10), st.floats(0, 10))
@settings(deadline=None, max_examples=50)
def test_matches_the_loops(old_classes, seed, temperature, scale):
    student, teacher = logits(seed=seed, scale=scale), logits(classes=old_classes, seed=seed + 1, scale=scale)
    loss = knowledge_distillation_loss(student, teacher, temperature=temperature)
    expected = distillation(student.tolist(), teacher.tolist(), temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-9)


@given(st.integers(1, 6), st.integers(0, 50), st.floats(0.5, 5))
@settings(deadline=None, max_examples=30)
def test_least_where_the_student_says_the_same_and_has_no_new_class(old_classes, seed, temperature):
    teacher = logits(classes=old_classes, seed=seed)
    same = torch.cat([teacher + 3, torch.full((5, 6 - old_classes), -1e4, dtype=torch.float64)], dim=1)
    same.requires_grad_()
    least = knowledge_distillation_loss(same, teacher, temperature=temperature)
    least.backward()
    assert same.grad.abs().max() < 1e-12  # the gradient is that of the KL divergence
    assert least <= knowledge_distillation_loss(logits(seed=seed + 1), teacher, temperature=temperature)


def test_new_classes_are_pushed_down():
    student = logits().requires_grad_()
    knowledge_distillation_loss(student, logits(classes=4, seed=1)).backward()
    assert (student.grad[:, 4:] > 0).all()


def test_without_old_classes_it_is_zero():
    student = logits().requires_grad_()
    loss = knowledge_distillation_loss(student, torch.empty(5, 0))
    loss.backward()
    assert loss.item() == 0 and student.grad.eq(0).all()


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_gradient(temperature):
    teacher = logits(classes=4, seed=1)
    assert torch.autograd.gradcheck(
        lambda x: knowledge_distillation_loss(x, teacher, temperature=temperature), logits().requires_grad_()
    )


def test_teacher_gets_no_gradient():
    student, teacher = logits().requires_grad_(), logits(classes=4, seed=1).requires_grad_()
    knowledge_distillation_loss(student, teacher).backward()
    assert teacher.grad is None


def test_saturated_logits_stay_exact():
    # A softmax and then its logarithm, as in mammoth's code, would be -inf here.
    student = torch.tensor([[0.0, 5e4, 0.0]], requires_grad=True)
    loss = knowledge_distillation_loss(student, torch.tensor([[1e4, 0.0]]), temperature=2.0)
    loss.backward()
    assert loss.item() == pytest.approx(5e4 / 2 * 4)
    torch.testing.assert_close(student.grad, torch.tensor([[-2.0, 2.0, 0.0]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    student, teacher = logits().to(dtype), logits(classes=4, seed=1).to(dtype)
    loss = knowledge_distillation_loss(student, teacher)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(distillation(student.tolist(), teacher.tolist(), 2.0))


@pytest.mark.parametrize(("student", "teacher"), [((5, 3), (5, 4)), ((5, 6), (4, 4)), ((5,), (5,)), ((5, 6), (5,))])
def test_shapes_must_fit(student, teacher):
    with pytest.raises(ValueError, match="K_old <= K"):
        knowledge_distillation_loss(torch.ones(student), torch.ones(teacher))


def test_temperature_must_be_positive():
    with pytest.raises(ValueError, match="temperature"):
        knowledge_distillation_loss(logits(), logits(), temperature=0.0)
