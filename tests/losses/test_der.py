import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import draw

from lreid.losses import dark_experience_loss


def stored(widths, classes, seed=1):
    """Logits of images that were stored when there were so many classes."""
    stored = draw(len(widths), classes, seed=seed)
    for row, width in enumerate(widths):
        stored[row, width:] = torch.nan
    return stored


def dark_experience(student, teacher):
    """The loss by nested loops over the numbers that were stored."""
    squares = [
        (new - old) ** 2
        for row, kept in zip(student, teacher, strict=True)
        for new, old in zip(row, kept, strict=False)
        if not math.isnan(old)
    ]
    return sum(squares) / len(squares) if squares else 0.0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(5, 8), st.integers(0, 99))
def test_loss_matches_loops(widths, classes, seed):
    student, teacher = draw(len(widths), classes, seed=seed), stored(widths, 5, seed + 1)
    loss = dark_experience_loss(student, teacher)
    assert loss.item() == pytest.approx(dark_experience(student.tolist(), teacher.tolist()), rel=1e-9)


def test_only_stored_logits_have_a_gradient():
    student, teacher = draw(5, 6).requires_grad_(), stored([6, 0, 1, 3, 4], 6)
    dark_experience_loss(student, teacher).backward()
    expected = 2 * (student.detach() - teacher).nan_to_num(0) / 14
    torch.testing.assert_close(student.grad, expected)
