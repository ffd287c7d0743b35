import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import golden_names, load_golden
from oracles import softmax as softmax_of
from torch.nn import functional as F

from lreid.losses import mean_squared_distillation_loss, relation_distillation_loss
from lreid.losses.relations import without_self


def draw(rows, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64)


def relations(vectors, row, temperature):
    """``{other row: probability}``."""
    return softmax_of(
        {
            other: sum(a * b for a, b in zip(vectors[row], vector, strict=True))
            for other, vector in enumerate(vectors)
            if other != row
        },
        temperature,
    )


def relation_distillation(student, teacher, temperature, teacher_temperature):
    """The loss by nested loops."""
    total = 0.0
    for row in range(len(student) if len(student) > 1 else 0):
        new = relations(student, row, temperature)
        old = relations(teacher, row, teacher_temperature)
        total -= sum(old[other] * math.log(new[other]) for other in new)
    return total / max(len(student), 1)


@pytest.mark.parametrize("name", golden_names("co2l_ird"))
def test_golden(name):
    hyper, arrays = load_golden(name)
    raw = arrays["raw_cur"].requires_grad_()
    loss = relation_distillation_loss(
        F.normalize(raw),
        F.normalize(arrays["raw_past"]),
        temperature=hyper["kappa_current"],
        teacher_temperature=hyper["kappa_past"],
    )
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(raw.grad, arrays["grad"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss.detach() * len(raw), arrays["loss_paper_sum"], rtol=1e-9, atol=1e-14)


def test_defaults_are_those_of_the_paper():
    student, teacher = F.normalize(draw(5)), F.normalize(draw(5, seed=1))
    expected = relation_distillation_loss(student, teacher, temperature=0.2, teacher_temperature=0.01)
    assert relation_distillation_loss(student, teacher) == expected


@given(st.integers(0, 7), st.floats(0.05, 2), st.floats(0.02, 2), st.integers(0, 9))
@settings(deadline=None, max_examples=60)
def test_matches_the_loops(rows, temperature, teacher_temperature, seed):
    student = F.normalize(draw(rows, seed=seed)).requires_grad_()
    teacher = F.normalize(draw(rows, width=3, seed=seed + 1)).requires_grad_()  # a model of another width
    temperatures = {"temperature": temperature, "teacher_temperature": teacher_temperature}
    loss = relation_distillation_loss(student, teacher, **temperatures)
    loss.backward()
    expected = relation_distillation(student.tolist(), teacher.tolist(), **temperatures)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert teacher.grad is None and student.grad.isfinite().all()
    if rows < 3:
        assert loss.item() == 0 and student.grad.eq(0).all()


def test_equal_models_at_equal_temperatures_are_the_least():
    teacher = F.normalize(draw(6))
    student = teacher.clone().requires_grad_()
    temperatures = {"temperature": 0.2, "teacher_temperature": 0.2}
    loss = relation_distillation_loss(student, teacher, **temperatures)
    loss.backward()
    assert loss > 0  # the teacher's entropy
    assert student.grad.abs().max() < 1e-12
    assert relation_distillation_loss(F.normalize(draw(6, seed=1)), teacher, **temperatures) > loss


def test_rotated_embeddings_have_the_same_relations():
    student, teacher = F.normalize(draw(6)), F.normalize(draw(6, seed=1))
    rotation = torch.linalg.qr(draw(5, seed=2)).Q
    torch.testing.assert_close(
        relation_distillation_loss(student @ rotation, teacher), relation_distillation_loss(student, teacher)
    )


def test_gradient():
    teacher = F.normalize(draw(6, seed=1))
    assert torch.autograd.gradcheck(
        lambda x: relation_distillation_loss(F.normalize(x), teacher, teacher_temperature=0.1), draw(6).requires_grad_()
    )


def test_a_cold_teacher_stays_finite_in_half_precision():
    student = F.normalize(draw(6)).bfloat16().requires_grad_()
    loss = relation_distillation_loss(student, F.normalize(draw(6, seed=1)).half(), teacher_temperature=1e-5)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite() and student.grad.isfinite().all()


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_without_self(rows):
    matrix = torch.arange(rows * rows).view(rows, rows)
    expected = [[row * rows + column for column in range(rows) if column != row] for row in range(rows)]
    assert without_self(matrix).tolist() == expected


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 9))
@settings(deadline=None, max_examples=30)
def test_mean_squares_match_the_loops(rows, width, seed):
    student = draw(rows, width, seed).requires_grad_()
    teacher = draw(rows, width, seed + 1).requires_grad_()
    loss = mean_squared_distillation_loss(student, teacher)
    loss.backward()
    pairs = zip(student.flatten().tolist(), teacher.flatten().tolist(), strict=True)
    assert loss.item() == pytest.approx(sum((a - b) ** 2 for a, b in pairs) / max(rows, 1))
    assert teacher.grad is None
    if rows:
        torch.testing.assert_close(student.grad, 2 * (student - teacher).detach() / rows)
        torch.testing.assert_close(loss / width, F.mse_loss(student, teacher))


@pytest.mark.parametrize(
    ("loss", "student", "teacher", "options", "message"),
    [
        (relation_distillation_loss, (4, 3), (5, 3), {}, "student and teacher"),
        (relation_distillation_loss, (4, 2, 3), (4, 2, 3), {}, "student and teacher"),
        (relation_distillation_loss, (4, 3), (4, 3), {"temperature": 0}, "temperature must be above 0"),
        (relation_distillation_loss, (4, 3), (4, 3), {"teacher_temperature": -1}, "temperature must be above 0"),
        (mean_squared_distillation_loss, (4, 3), (4, 2), {}, "student and teacher"),
        (mean_squared_distillation_loss, (4,), (4,), {}, "student and teacher"),
    ],
)
def test_bad_arguments(loss, student, teacher, options, message):
    with pytest.raises(ValueError, match=message):
        loss(torch.ones(student), torch.ones(teacher), **options)
