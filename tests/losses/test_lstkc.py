import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import affinities, divergence, draw

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


@given(LABELS, st.floats(0.05, 1), st.integers(0, 9), st.booleans())
def test_losses_match_loops(labels, temperature, seed, repeated):
    student, short, long = (draw(len(labels), width, seed=seed + width) for width in (3, 4, 5))
    if repeated:  # images that stand twice have affinities that tie, also where their labels differ
        short, long = (each[torch.arange(len(labels)) // 2] for each in (short, long))
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


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1, 2], [4, 4, 4, 4, 4, 4], [5, 4, 3, 2, 1, 0]])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e10])
def test_low_temperature_is_finite_with_repeated_images(labels, scale):
    student = draw(3, 5, scale=scale).repeat(2, 1).float().requires_grad_()
    short, long = (draw(3, 5, seed=seed).repeat(2, 1).float() for seed in (1, 2))
    truth, cold = torch.tensor(labels), {"temperature": 0.01}
    losses = [lstkc_rskt_loss(student, short, truth, **cold)]
    for weighted in (False, True):
        losses.append(lstkcpp_single_loss(student, short, truth, weighted=weighted, **cold))
        losses.append(lstkcpp_dual_loss(student, short, long, truth, weighted=weighted, **cold))
    for loss in losses:
        (gradient,) = torch.autograd.grad(loss, student)
        assert loss.isfinite() and gradient.isfinite().all()
