import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cross_entropy, draw

from lreid.losses import knowledge_distillation_loss


@given(st.integers(1, 6), st.integers(0, 50), st.floats(0.5, 10), st.floats(0, 20))
def test_loss_matches_loops(old_classes, seed, temperature, scale):
    student, teacher = draw(5, 6, seed=seed, scale=scale), draw(5, old_classes, seed=seed + 1, scale=scale)
    loss = knowledge_distillation_loss(student, teacher, temperature=temperature)
    expected = cross_entropy(teacher.tolist(), student.tolist(), temperature) * temperature**2
    assert loss.item() == pytest.approx(expected, rel=1e-9)  # new classes have the target 0


def test_saturated_logits_are_exact():
    # A softmax and then its logarithm, as in mammoth's code, would be -inf here.
    student = torch.tensor([[0.0, 5e4, 0.0]], requires_grad=True)
    loss = knowledge_distillation_loss(student, torch.tensor([[1e4, 0.0]]), temperature=2.0)
    loss.backward()
    assert loss.item() == pytest.approx(5e4 / 2 * 4)
    torch.testing.assert_close(student.grad, torch.tensor([[-2.0, 2.0, 0.0]]))
