"""The decay, against the formula of DwoPP's official code."""

from __future__ import annotations

import math

import pytest

from lreid.training.schedule import decay_factor


def official(e: int) -> float:
    """Epoch e = 1 … 600."""
    return 1.0 if e < 300 else 0.005 ** ((e + 1 - 300) / (601 - 300))


@pytest.mark.parametrize("epoch", [0, 1, 298, 299, 300, 450, 598, 599])
def test_600_epochs(epoch: int) -> None:
    assert decay_factor(epoch, 600, start=0.5, end=0.005) == pytest.approx(official(epoch + 1), rel=1e-12)


def test_it_falls_from_1_to_its_end() -> None:
    rates = [decay_factor(epoch, 7, start=0.5, end=0.01) for epoch in range(7)]
    assert rates[:3] == [1.0] * 3 and rates[3] < 1
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.01)
    for shape in ("exponential", "cosine"):
        assert decay_factor(3, 4, start=1.0, end=0.1, shape=shape) == 1.0
    assert decay_factor(0, 1, start=0.5, end=0.1) == pytest.approx(0.1)


def test_cosine_falls_from_1_to_its_end_in_every_task() -> None:
    rates = [decay_factor(epoch, 50, start=0.0, end=1e-3, shape="cosine") for epoch in range(50)]
    # Co2L's official code counts epochs from 1: end + (1 - end) * (1 + cos(pi * epoch / epochs)) / 2.
    expected = [1e-3 + (1 - 1e-3) * (1 + math.cos(math.pi * epoch / 50)) / 2 for epoch in range(1, 51)]
    assert rates == pytest.approx(expected)
    warm = [decay_factor(epoch, 50, start=0.0, end=1e-3, shape="cosine", warmup=10) for epoch in range(50)]
    assert warm[0] == pytest.approx(0.01 * rates[0]) and warm[10:] == rates[10:]
