"""PASS: turned images, prototypes of past identities, features held."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import DIM, assert_terms, batch_normed, batches, model, train
from synthetic_tasks import learn, synthetic_task

from lreid.data.synthetic import draw
from lreid.losses import batch_hard_triplet_loss, rotate_batch
from lreid.methods import build_method
from lreid.methods.pass_proto import PASS


def pass_proto(seed: int = 0, **options: object) -> PASS:
    return build_method("pass_proto", model(seed, neck=True), **options)


def in_second_task(**options: object) -> PASS:
    method = pass_proto(**options)
    learn(method, 1, exemplars=False)
    method.begin_task(synthetic_task(1))
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
    images, labels = rotate_batch(*batch[:2]) if rotate else batch[:2]
    features = method.model(images)
    assert method.classifier.weight.shape == (8 * turns, DIM)
    logits = batch_normed(features) * method.model.neck.weight @ method.classifier.weight.T  # all identities so far
    assert_terms(terms, 1e-4, softmax=F.cross_entropy(logits, labels, label_smoothing=0.05))
    assert_terms(terms, triplet=batch_hard_triplet_loss(features, labels, margin=0.2))
    with torch.no_grad():
        old = method.teacher(images)
    picks = torch.randint(4, (12,), generator=draws)
    noisy = method.prototypes[picks] + method.radius * torch.randn(12, DIM, generator=draws)
    log_probs = (noisy @ method.classifier.weight.T).log_softmax(1)
    prototypes = -sum(log_probs[row, turns * pick] for row, pick in enumerate(picks.tolist())) / 12
    assert_terms(terms, 1e-4, distill=(features - old).norm(), prototypes=prototypes)


@pytest.mark.slow
def test_pass_prototypes_and_radius() -> None:
    """Means of each task's own last features, from pixels; the radius is that of the first task for good."""
    method, prototypes, radii = pass_proto(), [], []
    for index in range(2):
        method.begin_task(synthetic_task(index))
        train(method, batches(2, seed=index, first_class=4 * index))
        network = copy.deepcopy(method.model).eval()
        method.end_task(synthetic_task(index))
        variances = []
        for label in range(4 * index, 4 * index + 4):
            paths = [record.path for record in synthetic_task(index).records if record.pid == label]
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


def test_pass_first_task_has_no_retention_terms() -> None:
    assert all(set(terms) == {"softmax", "triplet"} for terms in learn(pass_proto(), 1, exemplars=False))
