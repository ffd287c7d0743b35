import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import affinities, divergence, draw

from lreid.losses import affinity_kl_loss


@given(st.integers(0, 6), st.floats(0.05, 2), st.booleans(), st.integers(0, 9))
def test_loss_matches_loops(rows, temperature, reverse, seed):
    student = draw(rows, 5, seed=seed).requires_grad_()
    teacher = draw(rows, 3, seed=seed + 1)  # a model of another width
    loss = affinity_kl_loss(student, teacher, temperature=temperature, reverse=reverse)
    loss.backward()
    new, old = (affinities(each.tolist(), temperature) for each in (student, teacher))
    expected = divergence(new, old) if reverse else divergence(old, new)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert student.grad.isfinite().all()
