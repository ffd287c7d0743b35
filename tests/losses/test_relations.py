import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import cross_entropy, dot, draw
from torch.nn import functional as F

from lreid.losses import mean_squared_distillation_loss, relation_distillation_loss


def to_others(vectors):
    """Dot products of each vector with all others."""
    return [[dot(a, b) for j, b in enumerate(vectors) if j != i] for i, a in enumerate(vectors)]


@given(st.integers(0, 7), st.floats(0.05, 2), st.floats(0.02, 2), st.integers(0, 9))
def test_loss_matches_loops(rows, temperature, teacher_temperature, seed):
    student = F.normalize(draw(rows, 5, seed=seed)).requires_grad_()
    teacher = F.normalize(draw(rows, 3, seed=seed + 1))  # a model of another width
    temperatures = {"temperature": temperature, "teacher_temperature": teacher_temperature}
    loss = relation_distillation_loss(student, teacher, **temperatures)
    loss.backward()
    new, old = (to_others(each.tolist()) if rows > 1 else [] for each in (student, teacher))
    expected = cross_entropy(old, new, temperature, teacher_temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert student.grad.isfinite().all()
    if rows < 3:
        assert loss.item() == 0 and student.grad.eq(0).all()


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 9))
def test_mean_squares_match_the_loops(rows, width, seed):
    student, teacher = draw(rows, width, seed=seed), draw(rows, width, seed=seed + 1)
    loss = mean_squared_distillation_loss(student, teacher)
    pairs = zip(student.flatten().tolist(), teacher.flatten().tolist(), strict=True)
    assert loss.item() == pytest.approx(sum((a - b) ** 2 for a, b in pairs) / max(rows, 1))
