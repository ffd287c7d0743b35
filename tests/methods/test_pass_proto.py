"""PASS: turned images, prototypes of past identities, features held."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import DIM, batches, model, train
from synthetic_tasks import synthetic_task

from lreid.data.loaders import Batch
from lreid.data.records import Record, Task
from lreid.data.synthetic import draw
from lreid.losses import batch_hard_triplet_loss, rotate_batch
from lreid.methods import build_method
from lreid.methods.pass_proto import PASS


def task_of(index: int, turns: int = 1) -> Task:
    """Four identities with three drawn images each, or the classes of their turns."""
    task = synthetic_task(index)
    if turns == 1:
        return task
    records = [Record("", turns * record.pid + turn, 0) for record in task.records for turn in range(turns)]
    return Task(index, task.name, tuple(records))


def learn(method: object, tasks: int, steps: int = 2, turns: int = 1) -> list[dict[str, float]]:
    """The base learns turned images where they are given to it."""
    history = []
    for index in range(tasks):
        method.begin_task(task_of(index, turns))
        given = batches(steps, seed=index, first_class=4 * index)
        history += train(method, [turned(batch) if turns > 1 else batch for batch in given])
        method.end_task(task_of(index, turns))
    return history


def turned(batch: Batch) -> Batch:
    images, labels = rotate_batch(batch.images, batch.labels)
    return batch._replace(images=images, labels=labels)


def pass_proto(seed: int = 0, **options: object) -> PASS:
    return build_method("pass_proto", model(seed, neck=True), **options)


def in_second_task(**options: object) -> PASS:
    method = pass_proto(**options)
    learn(method, 1)
    method.begin_task(task_of(1))
    train(method, batches(2, seed=1, first_class=4))
    return method


@pytest.mark.parametrize("rotate", [True, False])
def test_terms(rotate: bool) -> None:
    method = in_second_task(rotate=rotate, margin=0.2, label_smoothing=0.05)
    turns = 4 if rotate else 1
    (batch,) = batches(1, seed=9, first_class=4)
    draws = torch.Generator()
    draws.set_state(method.generator.get_state())
    terms = method.loss(batch)
    assert set(terms) == {"softmax", "triplet", "prototypes", "distill"}
    images, labels = turned(batch)[:2] if rotate else batch[:2]
    features = method.model(images)
    normed = (features - features.mean(0)) / (features.var(0, unbiased=False) + 1e-5).sqrt()
    behind = normed * method.model.neck.weight
    assert method.classifier.weight.shape == (8 * turns, DIM)
    logits = behind @ method.classifier.weight.T  # all identities so far
    expected = F.cross_entropy(logits, labels, label_smoothing=0.05)
    assert terms["softmax"].item() == pytest.approx(expected.item(), rel=1e-4)
    expected = batch_hard_triplet_loss(features, labels, margin=0.2)
    assert terms["triplet"].item() == pytest.approx(expected.item(), rel=1e-5)
    with torch.no_grad():
        old = method.teacher(images)
    expected = sum(difference**2 for difference in (features - old).flatten().tolist()) ** 0.5
    assert terms["distill"].item() == pytest.approx(expected, rel=1e-4)
    picks = torch.randint(4, (12,), generator=draws)
    noisy = method.prototypes[picks] + method.radius * torch.randn(12, DIM, generator=draws)
    log_probs = (noisy @ method.classifier.weight.T).log_softmax(1)
    expected = -sum(log_probs[row, turns * pick] for row, pick in enumerate(picks.tolist())) / 12
    assert terms["prototypes"].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.slow
def test_pass_prototypes_and_radius() -> None:
    """Means of each task's own last features, from pixels; the radius is that of the first task for good."""
    method, prototypes, radii = pass_proto(), [], []
    for index in range(2):
        method.begin_task(task_of(index))
        train(method, batches(2, seed=index, first_class=4 * index))
        network = copy.deepcopy(method.model).eval()
        method.end_task(task_of(index))
        variances = []
        for label in range(4 * index, 4 * index + 4):
            paths = [record.path for record in task_of(index).records if record.pid == label]
            features = network.extract([draw(path) for path in paths]).astype(np.float64)
            prototypes.append(features.mean(0))
            variances.append(features.var(0, ddof=1).mean())
        radii.append(np.mean(variances) ** 0.5)
    np.testing.assert_allclose(method.prototypes.numpy(), prototypes, rtol=1e-4, atol=1e-5)
    assert method.prototype_classes.tolist() == list(range(8))
    assert method.radius == pytest.approx(radii[0], rel=1e-4)
    assert radii[1] != pytest.approx(radii[0], rel=1e-2)
    assert method.model.training  # as the trainer left it


def test_prototypes_train_only_the_classifier() -> None:
    method = in_second_task()
    method.model.zero_grad(), method.classifier.zero_grad()
    method.prototype_loss(12).backward()
    assert all(parameter.grad is None for parameter in method.model.parameters())
    rows = method.classifier.weight.grad.norm(dim=1)
    assert (rows > 0).all()  # old rows are held and new ones pushed away


@pytest.mark.slow
def test_pass_without_weights_is_bot_on_rotated_images() -> None:
    plain = learn(build_method("bot_ft", model(neck=True)), 2, turns=4)
    history = learn(pass_proto(prototype_weight=0.0, distillation_weight=0.0), 2)
    for one, other in zip(plain, history, strict=True):
        assert one == {key: other[key] for key in one}


def test_pass_first_task_has_no_retention_terms() -> None:
    assert all(set(terms) == {"softmax", "triplet"} for terms in learn(pass_proto(), 1))
