import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import draw

from lreid.losses import asymmetric_cross_entropy

LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=8)


def cross_entropy_over(logits, labels, classes):
    """The loss by nested loops, the denominator over the classes given."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        total += math.log(sum(math.exp(row[c] - row[label]) for c in classes))
    return total / len(labels)


@given(LABELS, st.none() | st.sets(st.integers(0, 6)), st.integers(0, 99), st.floats(0, 20))
def test_loss_matches_loops(labels, seen, seed, scale):
    rows = draw(len(labels), 7, seed=seed, scale=scale).requires_grad_()
    classes = set(labels)
    if seen is not None:
        classes |= set(range(max(seen | classes), 7))
    given_seen = None if seen is None else torch.tensor(sorted(seen), dtype=torch.int64)
    loss = asymmetric_cross_entropy(rows, torch.tensor(labels), given_seen)
    expected = cross_entropy_over(rows.tolist(), labels, classes)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    loss.backward()
    assert rows.grad[:, [column for column in range(7) if column not in classes]].eq(0).all()


def test_logits_of_absent_classes_are_ignored():
    # A fill of -1e9, as in the official code, would be above the logits of the batch.
    rows = torch.tensor([[-1e10, -1e10, 1e30], [-1e10, -1e10, 0.0]], requires_grad=True)
    loss = asymmetric_cross_entropy(rows, torch.tensor([0, 1]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    torch.testing.assert_close(rows.grad, torch.tensor([[-0.25, 0.25, 0], [0.25, -0.25, 0]]))
