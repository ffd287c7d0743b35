import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import affinities, draw, golden_names, load_golden

from lreid.losses import lstkc_rskt_loss, lstkcpp_dual_loss, lstkcpp_single_loss

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=9)


def judged(row, i, labels):
    """``{column: right}``, the greatest entry of another identity and the least of the own, by the definition."""
    others = [row[j] for j in row if labels[j] != labels[i]]
    own = [row[j] for j in row if labels[j] == labels[i] and j != i]
    highest, lowest = max(others, default=0.0), min(own, default=math.inf)
    right = {j: (j == i or row[j] > highest) if labels[j] == labels[i] else not row[j] > lowest for j in row}
    return right, highest, lowest


def normalised(row):
    return {j: value / sum(row.values()) for j, value in row.items()}


def lstkc_target(new, old, i, labels):
    (new_right, new_high, new_low), (old_right, old_high, old_low) = judged(new, i, labels), judged(old, i, labels)
    target = {}
    for j in old:
        if old_right[j]:
            target[j] = old[j]
        elif new_right[j]:
            target[j] = new[j]
        else:
            target[j] = max(new_high, old_high) if labels[j] == labels[i] else min(new_low, old_low)
    return normalised(target)


def single_target(old, i, labels):
    right, high, low = judged(old, i, labels)
    return normalised({j: old[j] if right[j] else high if labels[j] == labels[i] else low for j in old})


def dual_target(short, long, i, labels):
    (s_right, s_high, s_low), (l_right, l_high, l_low) = judged(short, i, labels), judged(long, i, labels)
    target = {}
    for j in short:
        kept = [row[j] for row, right in ((short, s_right), (long, l_right)) if right[j]]
        if kept:
            target[j] = sum(kept) / len(kept)
        else:
            target[j] = max(s_high, l_high) if labels[j] == labels[i] else min(s_low, l_low)
    return normalised(target)


def divergence(targets, new, weights=None):
    return sum(
        (weights[i][j] if weights else 1) * target[j] * math.log(target[j] / new[i][j])
        for i, target in enumerate(targets)
        for j in target
    ) / len(new)


def check(loss, student, arrays):
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(student.grad, arrays["grad"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("lstkc_rskt"))
def test_golden_rskt(name):
    hyper, arrays = load_golden(name)
    student = arrays["feat_new"].requires_grad_()
    options = {"temperature": hyper["tau"]}
    check(lstkc_rskt_loss(student, arrays["feat_old"], arrays["labels"], **options), student, arrays)
    student.grad = None
    lstkc_rskt_loss(student, arrays["feat_old"], arrays["labels"], detach_target=True, **options).backward()
    torch.testing.assert_close(student.grad, arrays["grad_target_detached"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("lstkcpp_single"))
def test_golden_single(name):
    hyper, arrays = load_golden(name)
    student = arrays["feat_new"].requires_grad_()
    options = {"temperature": hyper["tau"], "weighted": hyper["weighted_loss"]}
    check(lstkcpp_single_loss(student, arrays["feat_short"], arrays["labels"], **options), student, arrays)


@pytest.mark.parametrize("name", golden_names("lstkcpp_dual"))
def test_golden_dual(name):
    hyper, arrays = load_golden(name)
    student = arrays["feat_new"].requires_grad_()
    options = {"temperature": hyper["tau"], "weighted": hyper["weighted_loss"]}
    loss = lstkcpp_dual_loss(student, arrays["feat_short"], arrays["feat_long"], arrays["labels"], **options)
    check(loss, student, arrays)


@given(LABELS, st.floats(0.05, 1), st.integers(0, 9))
@settings(deadline=None, max_examples=60)
def test_all_match_the_loops(labels, temperature, seed):
    student, short, long = (draw(len(labels), width, seed + width) for width in (3, 4, 5))
    new, recent, older = (affinities(each.tolist(), temperature) for each in (student, short, long))
    truth, rows = torch.tensor(labels), range(len(labels))
    loss = lstkc_rskt_loss(student, short, truth, temperature=temperature)
    expected = divergence([lstkc_target(new[i], recent[i], i, labels) for i in rows], new)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    weights = [{j: abs((labels[i] == labels[j]) - a / (max(row.values()) + 1e-6)) for j, a in row.items()}
               for i, row in enumerate(new)]  # fmt: skip
    for weighted in (False, True):
        loss = lstkcpp_single_loss(student, short, truth, temperature=temperature, weighted=weighted)
        expected = divergence([single_target(recent[i], i, labels) for i in rows], new, weights if weighted else None)
        assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        loss = lstkcpp_dual_loss(student, short, long, truth, temperature=temperature, weighted=weighted)
        targets = [dual_target(recent[i], older[i], i, labels) for i in rows]
        assert loss.item() == pytest.approx(
            divergence(targets, new, weights if weighted else None), rel=1e-9, abs=1e-12
        )


@given(LABELS, st.permutations(range(9)), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_neither_order_nor_names_nor_lengths_count(labels, order, seed):
    student, short, long = (draw(len(labels), seed=seed + number) for number in range(3))
    truth, order = torch.tensor(labels), torch.tensor([row for row in order if row < len(labels)])
    before = (
        lstkc_rskt_loss(student, short, truth),
        lstkcpp_single_loss(student, short, truth),
        lstkcpp_dual_loss(student, short, long, truth),
    )
    student, short, long, truth = 2 * student[order], 3 * short[order], 4 * long[order], 7 - 2 * truth[order]
    after = (
        lstkc_rskt_loss(student, short, truth),
        lstkcpp_single_loss(student, short, truth),
        lstkcpp_dual_loss(student, short, long, truth),
    )
    torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-12)


def test_a_teacher_that_is_right_is_distilled_as_it_is():
    labels = torch.arange(4).repeat_interleave(3)
    teacher = torch.eye(5, dtype=torch.float64)[labels] + 0.05 * draw(12, seed=1)
    student = draw(12).requires_grad_()
    expected = sum(
        p[j] * math.log(p[j] / q[j])
        for p, q in zip(affinities(teacher.tolist(), 0.1), affinities(student.tolist(), 0.1), strict=True)
        for j in p
    )
    for loss in (lstkc_rskt_loss, lstkcpp_single_loss):
        assert loss(student, teacher, labels).item() == pytest.approx(expected / 12)
    assert lstkcpp_dual_loss(student, teacher, teacher, labels).item() == pytest.approx(expected / 12)
    detached, free = (
        torch.autograd.grad(lstkc_rskt_loss(student, teacher, labels, detach_target=detach), student)
        for detach in (True, False)
    )
    torch.testing.assert_close(detached, free)


def test_equal_teachers_are_one_teacher():
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    student, teacher = draw(6), draw(6, seed=1)
    one, two = lstkcpp_single_loss(student, teacher, labels), lstkcpp_dual_loss(student, teacher, teacher, labels)
    torch.testing.assert_close(one, two)


def test_equal_models_that_err_have_a_loss():
    features, labels = draw(6), torch.tensor([0, 1, 0, 1, 0, 1])
    assert lstkc_rskt_loss(features, features, labels) > 0.01


def losses(student, short, long, labels, **options):
    return [
        lstkc_rskt_loss(student, short, labels, **options),
        lstkc_rskt_loss(student, short, labels, detach_target=True, **options),
        *(lstkcpp_single_loss(student, short, labels, weighted=weighted, **options) for weighted in (False, True)),
        *(lstkcpp_dual_loss(student, short, long, labels, weighted=weighted, **options) for weighted in (False, True)),
    ]


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1, 2], [4, 4, 4, 4, 4, 4], [5, 4, 3, 2, 1, 0]])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e10])
def test_float32_stays_finite_with_repeated_images(labels, scale):
    student = (scale * draw(3).repeat(2, 1)).float().requires_grad_()
    short, long = (draw(3, seed=seed).repeat(2, 1).float().requires_grad_() for seed in (1, 2))
    for loss in losses(student, short, long, torch.tensor(labels), temperature=0.01):
        assert loss.dtype == torch.float32 and loss.isfinite()
        (gradient,) = torch.autograd.grad(loss, student)
        assert gradient.isfinite().all()


@pytest.mark.slow
def test_gradients_and_none_for_teachers():
    labels = torch.tensor([0, 1, 0, 2, 1, 0])
    short, long = (draw(6, seed=seed).requires_grad_() for seed in (1, 2))
    for number in (0, 2, 3, 4, 5):
        assert torch.autograd.gradcheck(
            lambda x, number=number: losses(x, short.detach(), long.detach(), labels)[number], draw(6).requires_grad_()
        )
    sum(losses(draw(6).requires_grad_(), short, long, labels)).backward()
    assert short.grad is None and long.grad is None


@pytest.mark.parametrize("loss", [lstkc_rskt_loss, lstkcpp_single_loss, lstkcpp_dual_loss])
def test_bad_arguments(loss):
    teachers = {lstkc_rskt_loss: 1, lstkcpp_single_loss: 1, lstkcpp_dual_loss: 2}[loss]
    four, labels = torch.ones(4, 2), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match="student must be"):
        loss(torch.ones(3, 2), *[torch.ones(3, 2)] * teachers, labels)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        loss(four, *[four] * teachers, labels, temperature=0)
    for wrong in range(teachers):
        with pytest.raises(ValueError, match="student and "):
            loss(four, *[torch.ones(3, 2) if number == wrong else four for number in range(teachers)], labels)
