import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import golden_names, load_golden
from torch.nn import functional as F

from lreid.losses import asymmetric_cross_entropy


def logits(rows=4, classes=6, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)


def cross_entropy(logits, labels, classes):
    """The loss by nested loops, the denominator over the classes given."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        total += math.log(sum(math.exp(row[c] - row[label]) for c in classes))
    return total / len(labels)


@pytest.mark.parametrize("name", golden_names("er_ace"))
def test_golden_with_the_denominator_of_the_code(name):
    _, arrays = load_golden(name)
    rows = arrays["logits"].requires_grad_()
    loss = asymmetric_cross_entropy(rows, arrays["label"], arrays["seen"])
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(rows.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("er_ace"))
def test_golden_with_the_denominator_of_the_paper(name):
    _, arrays = load_golden(name)
    loss = asymmetric_cross_entropy(arrays["logits"], arrays["label"])
    torch.testing.assert_close(loss, arrays["loss_paper"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("er_ace"))
def test_golden_buffer_loss_is_that_of_torch(name):
    _, arrays = load_golden(name)
    rows = arrays["logits_buf"].requires_grad_()
    loss = F.cross_entropy(rows, arrays["label_buf"])
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss_buf"], rtol=1e-9, atol=0)
    torch.testing.assert_close(rows.grad, arrays["grad_buf"], rtol=1e-9, atol=1e-12)


LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=8)


@given(LABELS, st.none() | st.sets(st.integers(0, 6)), st.integers(0, 99), st.floats(0, 10))
@settings(deadline=None, max_examples=60)
def test_matches_the_loops(labels, seen, seed, scale):
    rows = logits(len(labels), 7, seed, scale)
    classes = set(labels)
    if seen is not None:
        classes |= set(range(max(seen | classes), 7))
    given_seen = None if seen is None else torch.tensor(sorted(seen), dtype=torch.int64)
    loss = asymmetric_cross_entropy(rows, torch.tensor(labels), given_seen)
    expected = cross_entropy(rows.tolist(), labels, classes)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(LABELS, st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_is_cross_entropy_over_the_columns_of_the_batch(labels, seed):
    rows = logits(len(labels), 7, seed).requires_grad_()
    present, targets = torch.tensor(labels).unique(return_inverse=True)
    loss = asymmetric_cross_entropy(rows, torch.tensor(labels))
    torch.testing.assert_close(loss, F.cross_entropy(rows[:, present], targets))
    loss.backward()
    absent = [column for column in range(7) if column not in labels]
    assert rows.grad[:, absent].eq(0).all()


def test_only_the_highest_class_seen_counts():
    rows, labels = logits(), torch.tensor([0, 2, 2, 0])
    losses = {asymmetric_cross_entropy(rows, labels, torch.tensor(seen)).item() for seen in ([4], [0, 1, 2, 3, 4])}
    assert len(losses) == 1
    # One class more than the paper's, although it is neither in the batch nor to come.
    highest = asymmetric_cross_entropy(rows, labels, torch.tensor([5])).item()
    assert highest == pytest.approx(cross_entropy(rows.tolist(), labels.tolist(), {0, 2, 5}))
    assert highest > asymmetric_cross_entropy(rows, labels).item()


def test_one_class_is_zero_with_no_gradient():
    rows = logits().requires_grad_()
    loss = asymmetric_cross_entropy(rows, torch.tensor([3, 3, 3, 3]))
    loss.backward()
    assert loss.item() == 0
    assert rows.grad.eq(0).all()


@pytest.mark.parametrize("seen", [None, torch.tensor([4])])
def test_gradient(seen):
    labels = torch.tensor([0, 2, 2, 1])
    assert torch.autograd.gradcheck(lambda x: asymmetric_cross_entropy(x, labels, seen), logits().requires_grad_())


def test_absent_classes_may_have_any_logit():
    # A fill of -1e9, as in the official code, would be above the logits of the batch.
    rows = torch.tensor([[-1e10, -1e10, 1e30], [-1e10, -1e10, 0.0]], requires_grad=True)
    loss = asymmetric_cross_entropy(rows, torch.tensor([0, 1]))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    torch.testing.assert_close(rows.grad, torch.tensor([[-0.25, 0.25, 0], [0.25, -0.25, 0]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    rows, labels = logits().to(dtype), torch.tensor([0, 2, 2, 1])
    loss = asymmetric_cross_entropy(rows, labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(cross_entropy(rows.tolist(), labels.tolist(), {0, 1, 2}))


def test_nan_logits_show_in_the_loss():
    rows = logits()
    rows[0, 2] = torch.nan
    assert asymmetric_cross_entropy(rows, torch.tensor([0, 2, 2, 1])).isnan()


@pytest.mark.parametrize("shape", [(3, 6), (4,), (4, 6, 1)])
def test_shapes_must_fit(shape):
    with pytest.raises(ValueError, match="logits must be"):
        asymmetric_cross_entropy(torch.ones(shape), torch.tensor([0, 2, 2, 1]))
