"""Gradient norms of features against closed forms, and one entry an update."""

import math

import pytest
import torch

from lreid.config_keys import TrainSection
from lreid.data.loaders import Batch
from lreid.errors import InputError
from lreid.evaluation import DriftRecorder, GradientRecorder, SwitchObserver, gradient_norms
from lreid.models import Embedder
from lreid.training.updates import Updates


def test_gradient_norms_of_cross_entropy_in_closed_form() -> None:
    """``W^T (p - y) / B`` for each row; the graph is left for the update."""
    torch.manual_seed(0)
    points = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    loss = torch.nn.functional.cross_entropy(points @ weight.T, labels)
    norms = []
    for row, label in zip(points.tolist(), labels.tolist(), strict=True):
        exps = [math.exp(sum(w * x for w, x in zip(each, row, strict=True))) for each in weight.tolist()]
        error = [value / sum(exps) - (place == label) for place, value in enumerate(exps)]
        gradient = [sum(e * w[axis] for e, w in zip(error, weight.tolist(), strict=True)) / 5 for axis in range(3)]
        norms.append(math.sqrt(sum(value * value for value in gradient)))
    assert gradient_norms(loss, points).tolist() == pytest.approx(norms)
    assert points.grad is None
    loss.backward()


def test_features_outside_the_loss_have_gradient_norm_0() -> None:
    old, new = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    assert not gradient_norms(new.square().sum(), old).any()
    assert not gradient_norms(torch.tensor(0.0), old).any()  # a loss without a single anchor
    both = torch.cat([old, new])
    assert gradient_norms(both[3:].square().sum(), both).bool().tolist() == 3 * [False] + 3 * [True]


def test_features_without_gradient_are_refused() -> None:
    points = torch.randn(3, 4)
    with pytest.raises(InputError, match="no gradient"):
        gradient_norms(points.sum(), points)


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


def looked_at(recorder: GradientRecorder, batch: Batch) -> dict[str, torch.Tensor]:
    """The loss terms of a batch, with a recorder that the trainer would call."""
    recorder.before_loss()
    terms = recorder.method.loss(batch)
    recorder.after_loss(batch, recorder.method.total(terms))
    return terms


def test_norms_of_stored_and_incoming_features_are_separate() -> None:
    model = Embedder("small", height=32, width=16).eval()
    images = torch.randn(4, 3, 32, 16)
    recorder = GradientRecorder(TwoCalls(model, images), steps=3)
    batch = Batch(images, torch.arange(4))
    nothing = images[:0]
    mixed = batch._replace(exemplars=torch.tensor([-1, -1, 5, -1]))
    for stored, each in ((images[:2].clone(), batch), (nothing, batch), (nothing, mixed)):
        recorder.method.stored = stored
        terms = looked_at(recorder, each)
        recorder.after_step()
    looked_at(recorder, mixed)  # beyond the steps
    recorder.after_step()
    assert recorder.norms["incoming"] == pytest.approx([3.0, 3.0, 3.0])
    assert recorder.norms["stored"][0] == pytest.approx(2.0) and recorder.norms["stored"][1] is None
    assert recorder.norms["stored"][2] == pytest.approx(3.0)
    assert not model._forward_hooks and not model._forward_pre_hooks
    sum(terms.values()).backward()  # the graph is still there


class OneCall(TwoCalls):
    """Computes features of the batch and of stored images at once."""

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        pull = torch.tensor([3.0, 1.0, 2.0, 4.0, 8.0, 0.0])
        return {"incoming": (pull * self.features(batch)[:, 0]).sum()}

    def features(self, batch: Batch) -> torch.Tensor:
        return self.model(torch.cat([batch.images, self.stored]))


class Mapped(OneCall):
    """Pools the maps of the network itself, uses them besides, and asks for others without gradient."""

    def features(self, batch: Batch) -> torch.Tensor:
        self.kept = self.model.maps(torch.cat([batch.images, self.stored]))
        with torch.no_grad():
            self.model.pool(self.model.maps(batch.images))
        return self.model.pool(self.kept)

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"incoming": super().loss(batch)["incoming"] + self.kept.sum()}


@pytest.mark.parametrize("kind", [OneCall, Mapped])
def test_rows_after_the_batch_are_stored_images(kind: type[OneCall]) -> None:
    model = Embedder("small", height=32, width=16).eval()
    images = torch.randn(6, 3, 32, 16)
    batch = Batch(images[:4], torch.arange(4), exemplars=torch.tensor([-1, 7, -1, -1]))
    method = kind(model, images[4:])
    recorder = GradientRecorder(method, steps=2)
    looked_at(recorder, batch)
    recorder.after_step()
    method.memory = ""  # its own images in another form
    looked_at(recorder, batch)
    recorder.after_step()
    assert recorder.norms["incoming"] == pytest.approx([(3 + 2 + 4) / 3, 18 / 6])
    assert recorder.norms["stored"][0] == pytest.approx((1 + 8 + 0) / 3) and recorder.norms["stored"][1] is None
    assert not {"maps", "pool"} & model.__dict__.keys()  # as it was


class Pull(TwoCalls):
    """Pulls at features of a batch by its first label."""

    def __init__(self, model: Embedder) -> None:
        super().__init__(model, torch.empty(0))
        self.parameters = model.parameters

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"incoming": (batch.labels[0] * self.model(batch.images)[:, 0]).sum()}


def test_update_over_several_batches_is_one_entry() -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16).eval()
    method = Pull(model)
    recorder, watch = GradientRecorder(method, steps=2), SwitchObserver(method, None, {}, steps=2)
    watch.gradients, watch.drift = recorder, DriftRecorder(model, {}, steps=2)
    updates = Updates(method, TrainSection(OPTIMIZER="sgd", WEIGHT_DECAY=0.0))
    few, many = (Batch(torch.randn(count, 3, 32, 16), torch.tensor([label])) for count, label in ((1, 2.0), (3, 6.0)))
    for batches in ([few, many], [few], [many]):
        updates.update(batches, [watch])
    assert recorder.norms["incoming"] == pytest.approx([(2 + 3 * 6) / 4, 2.0])
    assert recorder.norms["stored"] == [None, None]


@pytest.mark.parametrize("label", [math.inf, math.nan])
def test_infinite_norm_is_recorded_as_none(label: float) -> None:
    model = Embedder("small", height=32, width=16).eval()
    recorder = GradientRecorder(Pull(model), steps=1)
    looked_at(recorder, Batch(torch.randn(2, 3, 32, 16), torch.tensor([label])))
    recorder.after_step()
    assert recorder.norms == {"stored": [None], "incoming": [None]}
