import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import distance, softmax

from lreid.losses import discriminant_alignment_loss


def draw(rows, width=4, seed=0, scale=0.7):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)


def alignment(student, teacher, anchors, temperature=1.0, prob_floor=1e-4, metric="sqeuclidean"):
    """The loss by nested loops."""
    total = 0.0
    for new, old in zip(student, teacher, strict=True):
        p_old, p_new = (
            softmax({k: -distance(row, anchor, metric) for k, anchor in enumerate(anchors)}, temperature)
            for row in (old, new)
        )
        for k in range(len(anchors)):
            p, q = max(p_old[k], prob_floor), max(p_new[k], prob_floor)
            total += p * math.log(p / q) if p > 0 else 0.0
    return total / len(student)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("prob_floor", [0.0, 1e-4, 0.1])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_matches_the_loops(metric, temperature, prob_floor, count):
    student, teacher, anchors = draw(6), draw(6, seed=1), draw(count, seed=2)
    options = {"temperature": temperature, "prob_floor": prob_floor, "metric": metric}
    loss = discriminant_alignment_loss(student, teacher, anchors, **options)
    expected = alignment(student.tolist(), teacher.tolist(), anchors.tolist(), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_gradient(metric):
    teacher, anchors = draw(6, seed=1), draw(5, seed=2)
    assert torch.autograd.gradcheck(
        lambda x: discriminant_alignment_loss(x, teacher, anchors, metric=metric), draw(6).requires_grad_()
    )


@given(st.integers(0, 50), st.floats(-50, 50), st.permutations(range(5)))
@settings(deadline=None, max_examples=30)
def test_never_negative_and_blind_to_a_common_shift_and_to_order(seed, shift, order):
    student, teacher, anchors = draw(6, seed=seed), draw(6, seed=seed + 1), draw(5, seed=seed + 2)
    loss = discriminant_alignment_loss(student, teacher, anchors, prob_floor=0)
    assert loss >= 0
    moved = discriminant_alignment_loss(student + shift, teacher + shift, anchors[order] + shift, prob_floor=0)
    torch.testing.assert_close(moved, loss, rtol=1e-8, atol=1e-9)


def test_free_to_move_where_no_anchor_is():
    # The old classes differ in the first dimension only: alignment leaves the others to the new task.
    anchors = torch.zeros(3, 4, dtype=torch.float64)
    anchors[:, 0] = torch.tensor([-1.0, 0.0, 2.0])
    teacher, student = draw(6), draw(6)
    student[:, 1:] += draw(6, width=3, seed=3)
    assert discriminant_alignment_loss(student, teacher, anchors).item() == pytest.approx(0, abs=1e-12)
    student[:, 0] += 0.5
    assert discriminant_alignment_loss(student, teacher, anchors) > 0.01


def test_gradient_goes_to_the_student_only_and_is_zero_for_the_same_features():
    student, teacher, anchors = (draw(6).requires_grad_() for _ in range(3))
    loss = discriminant_alignment_loss(student, teacher, anchors)
    loss.backward()
    assert loss.item() == 0 and student.grad.abs().max() < 1e-15
    assert teacher.grad is None and anchors.grad is None


@pytest.mark.parametrize("scale", [1e3, 1e10])
@pytest.mark.parametrize("prob_floor", [0.0, 1e-4])
def test_saturated_distances_stay_finite(scale, prob_floor):
    student = draw(6, 64, scale=scale).float().requires_grad_()
    loss = discriminant_alignment_loss(
        student, draw(6, 64, 1, scale).float(), draw(5, 64, 2, scale).float(), prob_floor=prob_floor
    )
    loss.backward()
    assert loss.isfinite() and student.grad.isfinite().all()


@pytest.mark.parametrize(
    ("student", "teacher", "anchors", "options", "message"),
    [
        (draw(6), draw(5), draw(3), {}, "student and teacher must both be"),
        (draw(0), draw(0), draw(3), {}, "at least one row"),
        (draw(6), draw(6), draw(3, width=5), {}, "anchors must be"),
        (draw(6), draw(6), draw(0), {}, "anchors must be"),
        (draw(6), draw(6), draw(3), {"metric": "l1"}, "unknown metric 'l1'"),
        (draw(6), draw(6), draw(3), {"temperature": 0}, "temperature"),
        (draw(6), draw(6), draw(3), {"prob_floor": 1.0}, "prob_floor"),
    ],
)
def test_bad_arguments(student, teacher, anchors, options, message):
    with pytest.raises(ValueError, match=message):
        discriminant_alignment_loss(student, teacher, anchors, **options)
