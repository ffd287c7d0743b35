"""Probes of frozen features against loops over plain numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.classification.probe import balanced_rows, knn_scores, linear_probe_scores, nearest_mean_scores
from lreid.errors import InputError


def points(seed: int, count: int, dim: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(
    seed=st.integers(0, 1000), labels=LABELS, k=st.integers(1, 15), temperature=st.sampled_from([0.07, 1.0, math.inf])
)
@settings(max_examples=40, deadline=None)
def test_votes_against_a_loop(seed: int, labels: list[int], k: int, temperature: float) -> None:
    train, test = points(seed, len(labels)), points(seed + 1, 3)
    scores = knn_scores(train, np.array(labels), test, k=k, temperature=temperature)
    assert scores.shape == (3, max(labels) + 1)
    for row, query in zip(scores, test, strict=True):
        ranked = sorted(((cosine(query, each), label) for each, label in zip(train, labels, strict=True)))[::-1]
        votes = [0.0] * len(row)
        for similarity, label in ranked[:k]:
            votes[label] += math.exp((similarity - ranked[0][0]) / temperature)
        assert row == pytest.approx(votes)


def test_votes_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    train, labels, test = points(0, 50), np.arange(50) % 7, points(1, 40)
    whole = knn_scores(train, labels, test, k=5)
    monkeypatch.setattr("lreid.retrieval.scores.BLOCK_SCORES", 150)
    assert np.allclose(knn_scores(train, labels, test, k=5), whole, rtol=1e-12)


def test_low_temperature_does_not_overflow_or_lose_all_votes() -> None:
    scores = knn_scores(points(0, 30), np.arange(30) % 3, -points(0, 4), temperature=1e-4)
    assert np.isfinite(scores).all()
    assert (scores.max(1) >= 1).all()


@given(seed=st.integers(0, 1000), labels=LABELS)
@settings(max_examples=30, deadline=None)
def test_nearest_mean_against_a_loop(seed: int, labels: list[int]) -> None:
    train, test = points(seed, len(labels)), points(seed + 1, 3)
    scores = nearest_mean_scores(train, np.array(labels), test)
    for row, query in zip(scores, test, strict=True):
        for label in range(max(labels) + 1):
            own = [each / math.sqrt(float(each @ each)) for each, of in zip(train, labels, strict=True) if of == label]
            expected = cosine(query, sum(own) / len(own)) if own else -math.inf
            assert row[label] == pytest.approx(expected)


def by_hand(
    train: np.ndarray,
    labels: np.ndarray,
    test: np.ndarray,
    epochs: int,
    lr: float,
    batch: int,
    seed: int,
    optimizer: str = "sgd",
    augmented=None,
):
    """Softmax regression by momentum SGD or Adam, gradients written out, on the same draws."""
    if augmented is None:
        centre = train.mean(0)
        scale = math.sqrt(np.mean([float(row @ row) for row in train - centre]))
        train, test = (train - centre) / scale, (test - centre) / scale
    classes = sorted(set(labels.tolist()))
    weight = np.zeros((len(classes), train.shape[1] + 1))  # the bias last
    velocity, squares, steps = np.zeros_like(weight), np.zeros_like(weight), 0
    rng = np.random.default_rng(seed)
    for epoch in range(epochs):
        rate = lr * 0.2 ** sum(epoch >= share * epochs for share in (0.6, 0.75, 0.9))
        drawn = balanced_rows(labels, len(labels), rng)
        for start in range(0, len(drawn), batch):
            rows = drawn[start : start + batch]
            gradient = np.zeros_like(weight)
            points = train[rows] if augmented is None else augmented(rows, int(rng.integers(2**31)))
            for row, point in zip(rows, points, strict=True):
                point = np.append(point, 1)
                exps = [math.exp(each @ point) for each in weight]
                for place, label in enumerate(classes):
                    gradient[place] += (exps[place] / sum(exps) - (label == labels[row])) * point / len(rows)
            steps += 1
            if optimizer == "sgd":
                velocity = 0.9 * velocity + gradient
                weight -= rate * velocity
            else:
                velocity, squares = 0.9 * velocity + 0.1 * gradient, 0.999 * squares + 0.001 * gradient**2
                root = np.sqrt(squares / (1 - 0.999**steps)) + 1e-8
                weight -= lr * velocity / (1 - 0.9**steps) / root
    scores = np.full((len(test), max(classes) + 1), -np.inf)
    for row, point in enumerate(test):
        for place, label in enumerate(classes):
            scores[row, label] = weight[place] @ np.append(point, 1)
    return scores


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_linear_probe_against_gradients_written_out(optimizer: str) -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 3])  # no image of class 2
    train, test = points(0, len(labels)) + 5, points(1, 4) + 5
    scores = linear_probe_scores(train, labels, test, epochs=20, lr=0.5, batch_size=4, seed=3, optimizer=optimizer)
    assert scores == pytest.approx(by_hand(train, labels, test, 20, 0.5, 4, 3, optimizer), abs=1e-6)
    assert (scores[:, 2] == -np.inf).all()


def test_linear_probe_of_the_papers_trains_on_raw_features_of_augmented_images() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 3, 3, 3])
    train, test = points(0, len(labels)) + 5, points(1, 4) + 5
    seeds: list[int] = []

    def augmented(rows: np.ndarray, seed: int) -> np.ndarray:
        seeds.append(seed)
        return train[rows] + np.random.default_rng(seed).normal(size=(len(rows), train.shape[1]))

    scores = linear_probe_scores(train, labels, test, epochs=20, lr=0.1, batch_size=4, seed=3, augmented=augmented)
    assert len(set(seeds)) == len(seeds) == 20 * 3  # new views in every step
    assert scores == pytest.approx(by_hand(train, labels, test, 20, 0.1, 4, 3, augmented=augmented), abs=1e-6)


def test_probes_tell_separate_classes_apart_and_keep_the_random_state() -> None:
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(5, 8))
    labels = np.repeat(np.arange(5), [40, 20, 10, 5, 3])  # as a buffer and the last task
    train = (centres[labels] + rng.normal(size=(len(labels), 8))).astype(np.float32)
    truth = np.repeat(np.arange(5), 20)
    test = (centres[truth] + rng.normal(size=(100, 8))).astype(np.float32)
    state = torch.get_rng_state()
    with torch.no_grad():  # an evaluation may be wrapped in it
        scores = linear_probe_scores(train, labels, test, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(scores, linear_probe_scores(torch.from_numpy(train), labels, test, seed=1))
    assert not np.array_equal(scores, linear_probe_scores(train, labels, test, seed=2))
    for each in (scores, knn_scores(train, labels, test, k=5), nearest_mean_scores(train, labels, test)):
        assert (each.argmax(1) == truth).mean() > 0.9


def test_draws_are_balanced_over_classes_and_even_within_them() -> None:
    def chi_square(counts: np.ndarray) -> float:
        return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())

    labels = np.array([2, 0, 0, 5, 0, 0, 5, 0])
    rows = balanced_rows(labels, 6000, np.random.default_rng(0))
    assert chi_square(np.bincount(labels[rows])[[0, 2, 5]]) < 13.8  # 2 degrees of freedom, p = 0.001
    for label, most in ((0, 18.5), (5, 10.8)):  # 4 degrees and 1
        assert chi_square(np.bincount(rows, minlength=8)[labels == label]) < most


@pytest.mark.parametrize("probe", [knn_scores, nearest_mean_scores, linear_probe_scores])
def test_bad_arrays_raise_an_error(probe) -> None:
    train, labels, test = points(0, 4), np.arange(4), points(1, 2)
    with pytest.raises(InputError, match="counted from 0"):
        probe(train, labels - 1, test)
    with pytest.raises(InputError, match="training labels: expected 4"):
        probe(train, labels[:3], test)
    with pytest.raises(InputError, match="numbers per row"):
        probe(train, labels, points(1, 2, dim=3))
    for bad in ((np.full_like(train, np.nan), labels, test), (train, labels, np.full_like(test, np.inf))):
        with pytest.raises(InputError, match="NaN, infinite"):
            probe(*bad)
