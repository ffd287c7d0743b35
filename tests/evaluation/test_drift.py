"""Drift, alignment and gradient norms against loops over plain numbers, and training that nobody disturbs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.data.loaders import Batch
from lreid.errors import InputError
from lreid.evaluation import (
    DriftRecorder,
    GradientRecorder,
    buffer_alignment,
    feature_drift,
    feature_gradient_norm,
)
from lreid.models import Embedder


def features(seed: int, count: int, dim: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim))


def unit(row: np.ndarray) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    return [value / length for value in row]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return sum(x * y for x, y in zip(unit(a), unit(b), strict=True))


@given(seed=st.integers(0, 1000), count=st.integers(1, 6), dim=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_drift_against_a_loop(seed: int, count: int, dim: int) -> None:
    before, after = features(seed, count, dim), features(seed + 1, count, dim)
    pairs = list(zip(before, after, strict=True))
    moved = [math.sqrt(sum((x - y) ** 2 for x, y in zip(unit(a), unit(b), strict=True))) for a, b in pairs]
    assert feature_drift(before, after) == pytest.approx(sum(moved) / count)
    turned = sum(1 - cosine(a, b) for a, b in pairs) / count
    assert feature_drift(before, after, "cosine") == pytest.approx(turned, abs=1e-12)


@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
@settings(max_examples=30, deadline=None)
def test_drift_sees_directions_only(seed: int, scale: float) -> None:
    before, after = features(seed, 5), features(seed + 1, 5)
    assert feature_drift(before, scale * before) == pytest.approx(0, abs=1e-12)
    assert feature_drift(before, scale * after) == pytest.approx(feature_drift(after, before))
    assert feature_drift(before, -before) == pytest.approx(2)
    assert feature_drift(before, -before, "cosine") == pytest.approx(2)


def test_small_drift_is_not_lost_in_rounding() -> None:
    """``1 - cos`` in float32 would give 0 here."""
    before = torch.tensor([[1.0, 0.0]])
    after = torch.tensor([[1.0, 1e-5]])
    assert feature_drift(before, after, "cosine") == pytest.approx(5e-11, rel=1e-3)


def test_drift_refuses_what_it_cannot_compare() -> None:
    with pytest.raises(InputError, match="same images"):
        feature_drift(features(0, 3), features(0, 4))
    with pytest.raises(InputError, match="metric"):
        feature_drift(features(0, 3), features(0, 3), "manhattan")
    with pytest.raises(InputError, match="NaN"):
        feature_drift(features(0, 3), np.full((3, 4), np.nan))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 32, 16, 3), dtype=np.uint8)


def small_model() -> tuple[Embedder, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16, neck=True).train()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def update(model: Embedder, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    batch = torch.randn(6, 3, 32, 16)  # from the global random state
    model.neck(model(batch)).square().mean().backward()
    optimizer.step()


def test_recorder_follows_every_set_for_the_first_steps() -> None:
    model, optimizer = small_model()
    sets = {"buffer": images(5), "held_out": images(7)}
    recorder = DriftRecorder(model, sets | {"empty": images(0)}, steps=3)
    seen = {name: [model.extract(each)] for name, each in sets.items()}
    for _ in range(5):
        update(model, optimizer)
        recorder.after_step()
        for name, each in sets.items():
            seen[name].append(model.extract(each))
    for name, (first, *later) in seen.items():
        steps = [feature_drift(a, b) for a, b in zip([first, *later], later, strict=False)]
        assert recorder.curves[name]["step"] == steps[:3]
        assert recorder.curves[name]["since_switch"] == [feature_drift(first, each) for each in later[:3]]
        assert steps[0] > 0
    assert recorder.curves.keys() == sets.keys()


def test_recorder_leaves_training_as_it_was() -> None:
    def trained(watched: bool) -> dict[str, torch.Tensor]:
        model, optimizer = small_model()
        model.neck.eval()  # a part may be in another mode than the whole
        modes = [module.training for module in model.modules()]
        recorder = DriftRecorder(model, {"held_out": images(5)}, steps=4) if watched else None
        for _ in range(4):
            update(model, optimizer)
            if recorder:
                recorder.after_step()
            assert [module.training for module in model.modules()] == modes
        return model.state_dict() | {"random": torch.get_rng_state()}

    alone, watched = trained(False), trained(True)
    assert alone.keys() == watched.keys()
    for name, value in alone.items():
        assert torch.equal(value, watched[name]), name


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


def test_alignment_of_images_that_are_held_out_too_is_1() -> None:
    labels = np.array([0, 1, 1])
    rows = features(0, 3)
    assert buffer_alignment(rows, labels, 3 * rows, labels, np.array([0, 1])) == pytest.approx({0: 1, 1: 1})


def test_alignment_needs_a_held_out_image_and_a_task_of_each_class() -> None:
    rows, labels = features(0, 3), np.array([0, 1, 2])
    with pytest.raises(InputError, match=r"classes \[2\] have no held-out image"):
        buffer_alignment(rows, labels, rows, np.array([0, 1, 1]), np.array([0, 0, 1]))
    with pytest.raises(InputError, match="in \\[0, 2\\)"):
        buffer_alignment(rows, labels, rows, labels, np.array([0, 0]))


def test_gradient_norm_of_cross_entropy_in_closed_form() -> None:
    """``W^T (p - y) / B`` for each row; the graph is left for the update."""
    torch.manual_seed(0)
    points = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    loss = torch.nn.functional.cross_entropy(points @ weight.T, labels)
    norms = []
    for row, label in zip(points.tolist(), labels.tolist(), strict=True):
        exps = [math.exp(sum(w * x for w, x in zip(each, row, strict=True))) for each in weight.tolist()]
        error = [value / sum(exps) - (place == label) for place, value in enumerate(exps)]
        gradient = [
            sum(e * w[axis] for e, w in zip(error, weight.tolist(), strict=True)) / 5 for axis in range(3)
        ]
        norms.append(math.sqrt(sum(value * value for value in gradient)))
    old = torch.tensor([True, False, True, False, False])
    assert feature_gradient_norm(loss, points) == pytest.approx(sum(norms) / 5)
    assert feature_gradient_norm(loss, points, old) == pytest.approx((norms[0] + norms[2]) / 2)
    assert feature_gradient_norm(loss, points, torch.tensor([1])) == pytest.approx(norms[1])
    assert points.grad is None
    loss.backward()


def test_features_outside_the_loss_have_gradient_norm_0() -> None:
    old, new = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    assert feature_gradient_norm(new.square().sum(), old) == 0
    assert feature_gradient_norm(torch.tensor(0.0), old) == 0  # a loss without a single anchor
    both = torch.cat([old, new])
    assert feature_gradient_norm(both[3:].square().sum(), both, torch.arange(3)) == 0


def test_gradient_norm_says_what_it_lacks() -> None:
    points = torch.randn(3, 4)
    with pytest.raises(InputError, match="no gradient"):
        feature_gradient_norm(points.sum(), points)
    points.requires_grad_()
    with pytest.raises(InputError, match="no feature"):
        feature_gradient_norm(points.sum(), points, torch.zeros(3, dtype=torch.bool))


class TwoCalls:
    """Pulls at features of a batch by 3, and at those of stored images by 4 and 0."""

    memory = "some"

    def __init__(self, model: Embedder, stored: torch.Tensor) -> None:
        self.model, self.stored = model, stored

    def total(self, terms: dict[str, torch.Tensor]) -> torch.Tensor:
        return terms["incoming"] + 2.0 * terms.get("stored", torch.zeros(()))

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            self.model(batch.images)  # a look without gradient does not count
        terms = {"incoming": 3 * self.model(batch.images)[:, 0].sum()}
        if len(self.stored):
            terms["stored"] = 2 * self.model(self.stored)[:1, 1].sum()
        return terms


def test_gradients_of_stored_and_incoming_features_are_told_apart() -> None:
    model = Embedder("small", height=32, width=16).eval()
    images = torch.randn(4, 3, 32, 16)
    recorder = GradientRecorder(model, steps=3)
    batch = Batch(images, torch.arange(4))
    recorder.loss(TwoCalls(model, images[:2].clone()), batch)
    recorder.loss(TwoCalls(model, images[:0]), batch)
    mixed = batch._replace(exemplars=torch.tensor([-1, -1, 5, -1]))
    terms = recorder.loss(TwoCalls(model, images[:0]), mixed)
    recorder.loss(TwoCalls(model, images[:0]), mixed)  # beyond the steps
    assert recorder.norms["incoming"] == pytest.approx([3.0, 3.0, 3.0])
    assert recorder.norms["stored"][0] == pytest.approx(2.0) and recorder.norms["stored"][1] is None
    assert recorder.norms["stored"][2] == pytest.approx(3.0)
    assert not model._forward_hooks
    sum(terms.values()).backward()  # the graph is still there


class OneCall(TwoCalls):
    """Looks at the batch and at stored images at once."""

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        pull = torch.tensor([3.0, 1.0, 2.0, 4.0, 8.0, 0.0])
        return {"incoming": (pull * self.model(torch.cat([batch.images, self.stored]))[:, 0]).sum()}


def test_images_behind_the_batch_are_stored_ones() -> None:
    model = Embedder("small", height=32, width=16).eval()
    images = torch.randn(6, 3, 32, 16)
    recorder = GradientRecorder(model, steps=2)
    batch = Batch(images[:4], torch.arange(4), exemplars=torch.tensor([-1, 7, -1, -1]))
    method = OneCall(model, images[4:])
    recorder.loss(method, batch)
    method.memory = ""  # its own images in another form
    recorder.loss(method, batch)
    assert recorder.norms["incoming"] == pytest.approx([(3 + 2 + 4) / 3, 18 / 6])
    assert (
        recorder.norms["stored"][0] == pytest.approx((1 + 8 + 0) / 3) and recorder.norms["stored"][1] is None
    )
