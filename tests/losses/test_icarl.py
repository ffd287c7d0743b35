import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import draw

from lreid.losses import icarl_loss

LABELS = torch.tensor([5, 0, 4, 2])  # with four old classes two exemplars


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def icarl(student, labels, teacher):
    """The loss by nested loops."""
    total = 0.0
    for row, label in enumerate(labels):
        for column, value in enumerate(student[row]):
            old = teacher is not None and column < len(teacher[row])
            target = sigmoid(teacher[row][column]) if old else float(column == label)
            total -= target * math.log(sigmoid(value)) + (1 - target) * math.log(1 - sigmoid(value))
    return total / len(student) / len(student[0])


@given(st.sampled_from([None, 1, 4, 6]), st.integers(0, 50), st.floats(0, 6))
def test_loss_matches_loops(old_classes, seed, scale):
    student = draw(4, 6, seed=seed, scale=scale)
    teacher = None if old_classes is None else draw(4, old_classes, seed=seed + 1, scale=scale)
    loss = icarl_loss(student, LABELS, teacher)
    expected = icarl(student.tolist(), LABELS.tolist(), None if teacher is None else teacher.tolist())
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_saturated_logits_are_exact():
    student = torch.tensor([[1e5, -1e5]], requires_grad=True)
    loss = icarl_loss(student, torch.tensor([1]), torch.tensor([[-1e5]]))
    loss.backward()
    assert loss.item() == 1e5
    torch.testing.assert_close(student.grad, torch.tensor([[0.5, -0.5]]))
