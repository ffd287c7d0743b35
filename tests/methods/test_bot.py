"""The softmax-triplet family: terms, classifiers that grow, and what is kept of the old one."""

import torch
import torch.nn.functional as F
from family import DIM, assert_terms, batch_normed, batches, learn, model, task_of, train

from lreid.losses import batch_hard_triplet_loss, knowledge_distillation_loss
from lreid.methods import build_method


def test_bot_terms_cover_the_identities_of_the_task() -> None:
    method = build_method("bot_ft", model(neck=True), margin=0.2, label_smoothing=0.05)
    learn(method, 1)
    old_rows = method.classifier.weight.detach().clone()
    method.begin_task(task_of(1))
    assert method.classifier.weight.shape == (8, DIM)
    assert torch.equal(method.classifier.weight[:4], old_rows)
    (batch,) = batches(1, seed=9, first_class=4)
    terms = method.loss(batch)
    features = method.model(batch.images)
    logits = batch_normed(features) * method.model.neck.weight @ method.classifier.weight[4:].T
    assert_terms(terms, 1e-4, softmax=F.cross_entropy(logits, batch.labels - 4, label_smoothing=0.05))
    assert_terms(terms, triplet=batch_hard_triplet_loss(features, batch.labels, margin=0.2))


def test_retrieval_features_come_after_the_neck() -> None:
    method = build_method("bot_ft", model(neck=True))
    learn(method, 1)
    images = torch.randn(5, 3, 32, 16)
    network = method.model.eval()
    with torch.no_grad():
        behind = network.neck(network(images))
    torch.testing.assert_close(torch.from_numpy(network.extract(images)), behind)
    assert not torch.allclose(behind, network(images))
    assert (network.neck.bias == 0).all()  # frozen


def test_lwf_distils_the_frozen_old_softmax() -> None:
    method = build_method("lwf", model(neck=True), temperature=3.0)
    first = learn(method, 1)
    assert set(first[0]) == {"softmax", "triplet"}
    method.begin_task(task_of(1))
    train(method, batches(3, seed=1, first_class=4))
    (batch,) = batches(1, seed=9, first_class=4)
    terms = method.loss(batch)
    with torch.no_grad():
        old = method.teacher.neck(method.teacher(batch.images)) @ method.old_classifier.weight.T
        new = method.classifier(method.model.neck(method.model(batch.images)))
    assert old.shape == (12, 4) and new.shape == (12, 8)
    assert_terms(terms, 1e-4, distill=knowledge_distillation_loss(new, old, temperature=3.0))
