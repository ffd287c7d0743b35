"""Bi-C2R's losses against loops over plain numbers in float64; no official values are at hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import draw

from lreid.losses import bic2r_ad_loss, bic2r_ca_loss, bic2r_cr_loss, bic2r_dc_loss

SEEDS = st.integers(0, 9)


def unit(rows: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(draw(rows, seed=seed), dim=1)


def softmax(values: list[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@given(st.integers(0, 5), SEEDS)
@settings(deadline=None, max_examples=20)
def test_alignment_is_the_mean_of_squares(rows: int, seed: int) -> None:
    one, other = unit(rows, seed), unit(rows, seed + 1)
    pairs = zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    squares = [(a - b) ** 2 for a, b in pairs]
    assert bic2r_ca_loss(one, other).item() == pytest.approx(sum(squares) / max(len(squares), 1), abs=1e-15)
    if rows:
        twice = 100 * bic2r_ca_loss(one, other).item()  # of unit vectors: 100 / D times the squared distance
        distance = (one - other).square().sum(1).mean().item()
        assert twice == pytest.approx(100 / one.shape[1] * distance)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.booleans(), SEEDS)
@settings(deadline=None, max_examples=40)
def test_relations_match_the_loops(labels: list[int], official_sum: bool, seed: int) -> None:
    mapped, source = unit(len(labels), seed).requires_grad_(), unit(len(labels), seed + 1)
    loss = bic2r_cr_loss(mapped, source, torch.tensor(labels), official_sum=official_sum)
    loss.backward()
    assert mapped.grad.isfinite().all()
    count = len(labels)
    if len(set(labels)) == 1:
        assert loss.item() == 0
        return

    def relations(features: list[list[float]]) -> list[list[float]]:
        rows = [softmax([dot(features[i], other) for other in features]) for i in range(count)]
        sums = [sum(rows[i][j] for j in range(count) if labels[i] != labels[j]) for i in range(count)]
        return [[rows[i][j] / sums[j if official_sum else i] for j in range(count)] for i in range(count)]

    p, q = relations(source.tolist()), relations(mapped.tolist())
    terms = [
        p[i][j] * math.log(p[i][j] / q[i][j]) for i in range(count) for j in range(count) if labels[i] != labels[j]
    ]
    assert loss.item() == pytest.approx(sum(terms) / count, rel=1e-9, abs=1e-14)


def test_relations_of_the_official_sum_are_nearly_the_same() -> None:
    mapped, source = unit(12, 0), unit(12, 1)
    labels = torch.arange(4).repeat_interleave(3)
    right, theirs = (bic2r_cr_loss(mapped, source, labels, official_sum=each).item() for each in (False, True))
    assert right != theirs and theirs == pytest.approx(right, rel=0.3)


@given(st.integers(0, 4), st.floats(0.5, 4), SEEDS)
@settings(deadline=None, max_examples=20)
def test_anti_forgetting_is_a_softened_cross_entropy(rows: int, temperature: float, seed: int) -> None:
    logits, reference = draw(rows, seed=seed), draw(rows, seed=seed + 1)
    terms = []
    for row, wanted_row in zip(logits.tolist(), reference.tolist(), strict=True):
        q, p = (softmax([value / temperature for value in each]) for each in (row, wanted_row))
        terms.append(dot(p, [math.log(value) for value in q]))
    wanted = -(temperature**2) * sum(terms) / max(rows, 1)
    assert bic2r_ad_loss(logits, reference, temperature=temperature).item() == pytest.approx(wanted, abs=1e-12)


def test_anti_forgetting_has_a_floor() -> None:
    """The entropy of the reference, here that of 50 classes alike: 4 log 50 = 15.6."""
    even = torch.zeros(3, 50)
    assert bic2r_ad_loss(even, even).item() == pytest.approx(4 * math.log(50))


def test_directions_of_change() -> None:
    old, new = unit(5, 0), unit(5, 1)
    assert bic2r_dc_loss(new, old, new).item() == pytest.approx(0, abs=1e-12)  # moves as the model did
    assert bic2r_dc_loss(2 * old - new, old, new).item() == pytest.approx(2)  # the other way
    assert bic2r_dc_loss(old, old, new).item() == pytest.approx(1)  # not at all
    angles = [
        dot(n_o, t_o) / math.sqrt(dot(n_o, n_o) * dot(t_o, t_o))
        for n_o, t_o in zip((new - old).tolist(), (unit(5, 2) - old).tolist(), strict=True)
    ]
    assert bic2r_dc_loss(unit(5, 2), old, new).item() == pytest.approx(1 - sum(angles) / 5)


def test_gradients() -> None:
    source, target, labels = unit(4, 1), unit(4, 2), torch.tensor([0, 0, 1, 2])
    mapped = unit(4, 0).requires_grad_()
    for loss in (
        lambda x: bic2r_ca_loss(x, target),
        lambda x: bic2r_cr_loss(x, source, labels),
        lambda x: bic2r_cr_loss(x, source, labels, official_sum=True),
        lambda x: bic2r_ad_loss(x, target),
        lambda x: bic2r_dc_loss(x, source, target),
    ):
        assert torch.autograd.gradcheck(loss, mapped)


def test_bad_shapes_are_told() -> None:
    one, labels = unit(3, 0), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="transferred, source and labels must be"):
        bic2r_cr_loss(one, one, labels)
    for call in (
        lambda: bic2r_ca_loss(one, unit(2, 0)),
        lambda: bic2r_ad_loss(one, unit(2, 0)),
        lambda: bic2r_dc_loss(one, one, unit(2, 0)),
    ):
        with pytest.raises(ValueError, match="must both be"):
            call()
    for call in (lambda x: bic2r_ca_loss(x, x), lambda x: bic2r_ad_loss(x, x), lambda x: bic2r_dc_loss(x, x, x)):
        assert call(one[:0]).item() == 0
