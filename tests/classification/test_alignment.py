"""Alignment of stored with held-out images, against nested loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.classification.alignment import buffer_alignment


def features(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 4))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


@given(
    seed=st.integers(0, 1000),
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    more=st.lists(st.integers(0, 4), max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_alignment_against_nested_loops(seed: int, labels: list[int], more: list[int]) -> None:
    tasks = [0, 0, 1, 2, 2]
    held_out_labels = [*sorted(set(labels)), *more]
    buffer, held_out = features(seed, len(labels)), features(seed + 1, len(held_out_labels))
    expected: dict[int, list[float]] = {}
    for label, stored in zip(labels, buffer, strict=True):
        nearest = max(
            cosine(stored, other)
            for other_label, other in zip(held_out_labels, held_out, strict=True)
            if other_label == label
        )
        expected.setdefault(tasks[label], []).append(nearest)
    aligned = buffer_alignment(buffer, np.array(labels), held_out, np.array(held_out_labels), np.array(tasks))
    assert list(aligned) == sorted(expected)
    assert aligned == pytest.approx({task: sum(each) / len(each) for task, each in expected.items()})
