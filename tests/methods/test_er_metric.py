"""ER in metric form: which images are compared with which, against loops, and what a step replays."""

import copy
import math

import numpy as np
import pytest
import torch
from family import model
from test_er import learn, segments
from torch import Tensor

from lreid.methods import build_method
from lreid.methods.er_metric import ERMetric

FORMS = [(loss, asymmetric) for loss in ("triplet", "dmml") for asymmetric in (False, True)]


def new(**options: object) -> ERMetric:
    return build_method("er_metric", model(), **options)


def triplets(features: list[np.ndarray], labels: list[int], anchors: range, seen: range, margin: float) -> float:
    """Mean over the anchors of max(0, farthest of its own - nearest other + margin), among the rows seen."""
    terms = []
    for i in anchors:
        gap = {j: float(np.linalg.norm(features[i] - features[j])) for j in seen}
        own = max(max(gap[j], 1e-6) for j in seen if labels[j] == labels[i])
        other = min(gap[j] for j in seen if labels[j] != labels[i])
        terms.append(max(0.0, own - other + margin))
    return sum(terms) / len(terms)


def episodes(features: list[np.ndarray], labels: list[int], anchors: range, seen: range, margin: float) -> float:
    """Mean over the anchors that are no support of log(1 + sum exp(own - max(other - margin, 0))), and the penalty."""
    supports: dict[int, list[int]] = {}
    queries = []
    for j in seen:
        of_label = supports.setdefault(labels[j], [])
        of_label.append(j) if len(of_label) < 2 else queries.append(j)
    terms = []
    for i in queries:
        if i in anchors:
            gap = {j: float(((features[i] - features[j]) ** 2).sum()) for rows in supports.values() for j in rows}
            own = max(gap[j] for j in supports[labels[i]])
            near = [min(gap[j] for j in rows) for label, rows in supports.items() if label != labels[i]]
            terms.append(math.log(1 + sum(math.exp(own - max(each - margin, 0)) for each in near)))
    penalty = 5e-4 * sum(float((features[j] ** 2).sum()) for j in seen) / len(seen)
    return sum(terms) / len(terms) + penalty if terms else 0.0


@pytest.mark.parametrize(("metric_loss", "asymmetric"), FORMS)
def test_metric_terms_match_loops(metric_loss: str, asymmetric: bool) -> None:
    method = new(metric_loss=metric_loss, asymmetric=asymmetric, exemplars=16, replay=8)
    learn(method, 2)
    (batch,) = segments(2, steps=1, size=12)
    twin = copy.deepcopy(method)
    terms = method.loss(batch)
    rows = twin.memory.draw(8, each=4)
    with torch.no_grad():  # in training mode: both are normalised together
        values: Tensor = twin.model(torch.cat([batch.images, twin.read(rows).images]))
    features = list(values.double().numpy())
    labels = [*batch.labels.tolist(), *twin.memory.labels[rows].tolist()]
    loops = triplets if metric_loss == "triplet" else episodes
    everyone, new_ones = range(20), range(12)
    expected = loops(features, labels, new_ones, new_ones if asymmetric else everyone, 0.3)
    assert terms["incoming"].item() == pytest.approx(expected, rel=1e-4)
    assert terms["replay"].item() == pytest.approx(loops(features, labels, range(12, 20), everyone, 0.3), rel=1e-4)


@pytest.mark.slow
def test_asymmetric_loss_ignores_stored_negatives() -> None:
    """Its incoming term is that of fine-tuning on the batch; the symmetric one has old identities for negatives."""
    values = {}
    for asymmetric in (False, True):
        method = new(asymmetric=asymmetric, exemplars=16)
        learn(method, 2)
        method.model.eval()
        (batch,) = segments(2, steps=1, size=12)
        alone = method.anchored(method.model(batch.images), batch.labels, slice(12))
        values[asymmetric] = (method.loss(batch)["incoming"].item(), alone.item())
    assert values[True][0] == pytest.approx(values[True][1], rel=1e-5)
    assert values[False][0] > values[False][1]


def test_empty_memory_and_missing_pairs_are_accepted() -> None:
    method = new(metric_loss="dmml", exemplars=0)
    assert all(set(terms) == {"incoming"} for terms in learn(method, 2))
    (batch,) = segments(1, steps=1, size=4)  # one image of each identity: supports alone
    assert method.loss(batch)["incoming"].item() == 0
