"""Online iCaRL against ER-ACE's Appendix A: its draws, terms and classifier as nested loops."""

import math

import numpy as np
import pytest
import torch
from family import model, task_of
from test_er import learn, segments

from lreid.methods import build_method


def bce(z: float, target: float) -> float:
    g = 1 / (1 + math.exp(-z))
    return -target * math.log(g) - (1 - target) * math.log(1 - g)


def test_terms_match_loops_over_images_and_classes() -> None:
    method = build_method("icarl_online", model(), exemplars=20, distillation_weight=0.7)
    assert all(set(terms) == {"incoming"} for terms in learn(method, 1))  # the current task is not replayed
    method.begin_task(task_of(1))
    with torch.no_grad():
        method.classifier.weight.normal_()
        method.old_classifier.weight.normal_()
    method.model.eval()
    (batch, *_) = segments(1)
    logits, old = method.logits(batch.images), method.old_classifier(method.teacher(batch.images))
    assert logits.shape == (6, 8) and old.shape == (6, 4)
    expected = 0.0
    for i, label in enumerate(batch.labels.tolist()):
        expected += sum(bce(logits[i, k].item(), float(k == label)) for k in range(8)) / 6
        expected += 0.7 * sum(bce(logits[i, k].item(), torch.sigmoid(old[i, k]).item()) for k in range(4)) / 6
    drawn, read = [], method.read
    method.read = lambda rows: drawn.append(rows) or read(rows)
    terms = method.loss(batch)
    assert terms["incoming"].item() == pytest.approx(expected, rel=1e-4)
    (rows,) = drawn
    assert len(rows) == 6 and set(method.memory.labels[rows]) <= {0, 1, 2, 3}  # as many as come in, of past tasks
    stored = read(rows)
    logits = method.logits(stored.images)
    expected = sum(
        bce(logits[i, k].item(), float(k == y)) / 6 for i, y in enumerate(stored.labels.tolist()) for k in range(8)
    )
    assert terms["replay"].item() == pytest.approx(expected, rel=1e-4)


def test_classifier_is_the_nearest_mean_of_stored_features() -> None:
    method = build_method("icarl_online", model(), exemplars=15)
    learn(method, 2)
    method.memory._keep(np.flatnonzero(method.memory.labels != 6))
    features = torch.randn(5, method.model.dim)
    stored = method.model.extract(method.memory.images).astype(np.float64)
    scores = method.class_scores(features)
    for i, query in enumerate(features.numpy().astype(np.float64)):
        for k in range(8):
            own = stored[method.memory.labels == k]
            expected = -np.square(query - own.mean(0)).sum() if len(own) else -math.inf
            assert scores[i, k].item() == pytest.approx(expected, rel=1e-4)
