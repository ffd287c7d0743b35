"""Retrace: what it learns by, how far it goes back, and that it keeps nothing."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import DIM, assert_terms, batch_normed, model, train
from fusing import begun, copied, learn
from synthetic_tasks import synthetic_task

from lreid.data.loaders import Batch
from lreid.data.records import Record, Task
from lreid.losses import batch_hard_triplet_loss, linear_combination
from lreid.methods import Method, build_method, method_class, method_defaults
from lreid.methods.retrace import MEASURED, _sample
from lreid.retrieval import evaluate


def built(seed: int = 0, **options: float) -> Method:
    return build_method("retrace", model(seed, neck=True), **options)


def test_retrace_terms_cover_the_identities_of_the_task() -> None:
    method = built()
    batch = begun(method, 1)
    terms = method.loss(batch)
    features = method.model(batch.images)
    logits = batch_normed(features) * method.task_neck.weight @ method.classifier.weight.T
    assert set(terms) == {"softmax", "triplet"}
    assert logits.shape == (12, 4)  # of eight so far
    assert_terms(terms, 1e-4, softmax=F.cross_entropy(logits, batch.labels - 4))
    assert_terms(terms, triplet=batch_hard_triplet_loss(features, batch.labels, margin=None))


def taught(method: Method, steps: int = 6) -> None:
    """Learns the images of the first task, which a few steps are enough for."""
    records = synthetic_task(0).records
    images = method.model.ready([record.path for record in records])
    method.begin_task(synthetic_task(0))
    train(method, steps * [Batch(images, torch.tensor([record.pid for record in records]), 0)])


@pytest.mark.parametrize("keep", [0.1, 0.9, 1.0])
def test_alpha_is_the_smallest_of_32_that_retains_the_gain(keep: float) -> None:
    method = built(keep=keep, centre=0)
    taught(method)
    new, old = copied(method.model.state_dict()), copied(method.began.state_dict())
    records = synthetic_task(0).records
    paths, labels, cameras = (
        [record.path for record in records],
        *(np.array([getattr(record, name) for record in records]) for name in ("pid", "camid")),
    )

    def found(alpha: float) -> float:
        network = model(neck=True)
        network.load_state_dict(linear_combination(new, old, alpha))
        features = network.extract(paths)
        return evaluate(features, features, labels, labels, cameras, cameras).mAP

    curve = [found(place / 32) for place in range(33)]
    assert curve[0] < curve[-1]
    enough = curve[-1] - (1 - keep) * curve[0] * (curve[-1] - curve[0])
    method.finish_task(synthetic_task(0))
    place = round(32 * method.share)
    assert method.share == place / 32 == method.figures()["share"]
    assert curve[place] >= enough > curve[place - 1]
    expected = linear_combination(new, old, method.share)
    torch.testing.assert_close(dict(method.model.state_dict()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("centre", [0.5, 1.0])
def test_retrieval_subtracts_a_share_of_the_mean_feature(centre: float) -> None:
    method = built(centre=centre)
    for task in (0, 1):  # the mean of one task does not stay in that of the next
        learn(method, task + 1, first=task)
    paths = [record.path for record in synthetic_task(1).records]
    compared = method.model.extract(paths)
    method.model.neck = torch.nn.Identity()
    features = method.model.extract(paths)
    np.testing.assert_allclose(compared, features - centre * features.mean(0), rtol=1e-4, atol=1e-4)


def test_task_without_gain_restores_the_weights() -> None:
    method = built(centre=0)
    learn(method, 1)
    method.begin_task(synthetic_task(1))
    before = copied(method.model.state_dict())
    method.finish_task(synthetic_task(1))  # without a step
    assert method.share == 1 / 32
    torch.testing.assert_close(dict(method.model.state_dict()), before)


def test_retrace_stores_nothing_between_tasks() -> None:
    method = built(rate=3.0)
    assert [group["rate_factor"] for group in method.parameters()] == [3]
    learn(method, 2)
    assert method.began is None and len(method.classifier) == 0
    stored = method.stored(identities=8)
    # The neck of the task to come, new, is all: nothing of the past.
    assert stored["domain"] == stored["identity"] == stored["templates"] == 0
    assert stored["networks"] == sum(value.nbytes for value in method.task_neck.state_dict().values() if value.ndim)
    assert method.class_scores(torch.zeros(1, DIM)) is None


def test_large_task_is_measured_on_whole_identities() -> None:
    records = tuple(Record(str(number), number // 10, number % 3) for number in range(20_000))
    paths, labels, cameras = _sample(Task(0, "", records))
    assert 0.9 * MEASURED < len(paths) <= MEASURED
    assert set(np.unique(labels, return_counts=True)[1]) == {10}
    assert labels.min() < 100 and labels.max() > 1900
    assert [int(path) % 3 for path in paths] == cameras.tolist()


def test_retrace_refuses_exemplars() -> None:
    assert set(method_defaults(method_class("retrace"))) == {"rate", "keep", "centre"}
