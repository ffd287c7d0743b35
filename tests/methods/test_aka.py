"""AKA: a graph next to LwF; its terms, its limits, and the official traps as options."""

import copy

import pytest
import torch
import torch.nn.functional as F
from family import assert_terms, batch_normed, batches, learn, model, task_of, train

from lreid.losses import batch_hard_triplet_loss, knowledge_distillation_loss, plasticity_loss
from lreid.methods import build_method
from lreid.methods.aka import AKA


def aka(seed: int = 0, **options: object) -> AKA:
    torch.manual_seed(seed)
    return build_method("aka", model(seed, neck=True), vertices=5, **options)


def in_second_task(**options: object) -> AKA:
    method = aka(**options)
    learn(method, 1)
    method.begin_task(task_of(1))
    train(method, batches(2, seed=1, first_class=4))
    return method


def test_terms() -> None:
    method = in_second_task(margin=0.2, temperature=3.0)
    (batch,) = batches(1, seed=9, first_class=4)
    draws = method.graph.generator.get_state()
    terms = method.loss(batch)
    assert set(terms) == {"softmax", "triplet", "plasticity", "distill", "stability"}
    method.graph.generator.set_state(draws)  # the same dropout again
    features = method.model(batch.images)
    fused = features + method.graph(features)
    expected = plasticity_loss(fused, batch.labels, margin=0.2)
    weight = next(method.model.parameters())  # the features learn from it, not the graph alone
    gradients = [torch.autograd.grad(term, weight)[0] for term in (terms["plasticity"], expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)
    logits = method.classifier(method.model.neck(features))
    with torch.no_grad():
        old = method.old_classifier(method.teacher.neck(method.teacher(batch.images)))
    assert_terms(
        terms,
        plasticity=expected,
        triplet=batch_hard_triplet_loss(features, batch.labels, margin=0.2),
        softmax=F.cross_entropy(logits[:, 4:], batch.labels - 4, label_smoothing=0.1),
        distill=knowledge_distillation_loss(logits, old, temperature=3.0),
    )
    moved = [
        sum((a / new.norm() - b / before.norm()) ** 2 for a, b in zip(new, before, strict=True))
        for new, before in zip(method.graph.vertices.double(), method.old_vertices.double(), strict=True)
    ]
    assert terms["stability"].item() == pytest.approx(sum(moved).item() / 5, rel=1e-4)
    assert terms["stability"] > 0


def test_first_task_trains_the_graph() -> None:
    method = aka()
    method.begin_task(task_of(0))
    before = {name: value.clone() for name, value in method.graph.named_parameters()}
    history = train(method, batches(1))
    assert set(history[0]) == {"softmax", "triplet", "plasticity"}
    assert all(not torch.equal(value, before[name]) for name, value in method.graph.named_parameters())
    method.end_task(task_of(0))
    assert torch.equal(method.old_vertices, method.graph.vertices)
    method.begin_task(task_of(1))
    (start,) = train(method, batches(1, first_class=4))
    assert start["stability"] == 0


@pytest.mark.slow
def test_teacher_may_be_in_training_mode() -> None:
    method = in_second_task(teacher_in_training=True)
    (batch,) = batches(1, seed=9, first_class=4)
    value = method.loss(batch)["distill"]
    with torch.no_grad():
        features = copy.deepcopy(method.teacher).train()(batch.images)
        old = method.old_classifier(batch_normed(features) * method.teacher.neck.weight)
        new = method.classifier(method.model.neck(method.model(batch.images)))
    assert value.item() == pytest.approx(knowledge_distillation_loss(new, old).item(), rel=1e-4)
    other = aka(seed=5, teacher_in_training=True)
    other.load_state_dict(method.state_dict())
    assert other.teacher.training and not in_second_task().teacher.training


def test_smoothing_may_cover_the_identities_of_all_tasks() -> None:
    method = in_second_task(smoothing_classes=2494, label_smoothing=0.2)
    (batch,) = batches(1, seed=9, first_class=4)
    value = method.loss(batch)["softmax"]
    with torch.no_grad():
        own = method.classifier(method.model.neck(method.model(batch.images)))[:, 4:]
    targets = 0.8 * F.one_hot(batch.labels - 4, 4) + 0.2 / 2494
    assert value.item() == pytest.approx(-(targets * own.log_softmax(1)).sum(1).mean().item(), rel=1e-5)
