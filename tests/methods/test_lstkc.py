"""LSTKC and LSTKC++: what is distilled, and which networks become one."""

import copy

import numpy as np
import pytest
import torch
from family import assert_terms, model
from fusing import begun, copied, learn
from synthetic_tasks import synthetic_task

from lreid.data.records import Record, Task
from lreid.losses import lstkc_rskt_loss, lstkcpp_alpha, lstkcpp_dual_loss, lstkcpp_single_loss
from lreid.methods import build_method
from lreid.methods.lstkc_pp import SHARES
from lreid.retrieval import evaluate

PATHS = [record.path for record in synthetic_task(2).records]


@pytest.mark.parametrize("detach", [False, True])
def test_lstkc_distils_corrected_affinities(detach: bool) -> None:
    method = build_method("lstkc", model(), detach_target=detach, temperature=0.2)
    batch = begun(method, 1)
    terms = method.loss(batch)
    assert set(terms) == {"softmax", "triplet", "distill"} and method.weights == {"distill": 1.0}
    new, old = method.model(batch.images), method.teacher.model(batch.images)
    assert_terms(terms, distill=lstkc_rskt_loss(new, old, batch.labels, temperature=0.2, detach_target=detach))


@pytest.mark.slow
def test_lstkc_pp_has_two_teachers_from_the_third_task_on() -> None:
    method = build_method("lstkc_pp", model())
    batch = begun(method, 1)
    new, short = method.model(batch.images), method.teacher.model(batch.images)
    assert_terms(method.loss(batch), distill=lstkcpp_single_loss(new, short, batch.labels))
    method = build_method("lstkc_pp", model())
    batch = begun(method, 2)
    new = method.model(batch.images)
    short, long = method.teacher.model(batch.images), method.long_teacher.model(batch.images)
    assert_terms(method.loss(batch), distill=lstkcpp_dual_loss(new, short, long, batch.labels))


def test_lstkc_pp_stores_the_trained_and_the_averaged_network() -> None:
    method = build_method("lstkc_pp", model())
    learn(method, 1)
    first = copied(method.teacher.state_dict())
    torch.testing.assert_close(dict(method.network.state_dict()), first)
    begun_at = copy.deepcopy(method)
    learn(method, 2, first=1)
    torch.testing.assert_close(dict(method.long_teacher.state_dict()), first)
    name = "model.backbone.0.weight"
    trained, fused = method.teacher.state_dict()[name], method.network.state_dict()[name]
    paths = [record.path for record in synthetic_task(1).records]
    alpha = lstkcpp_alpha(
        torch.from_numpy(method.teacher.model.extract(paths)), torch.from_numpy(begun_at.model.extract(paths))
    )
    torch.testing.assert_close(fused, alpha * trained + (1 - alpha) * first[name])
    assert not torch.allclose(fused, trained)


@pytest.mark.slow
def test_lstkc_pp_averages_teachers_by_the_best_map() -> None:
    method = build_method("lstkc_pp", model())
    begun(method, 2)
    assert SHARES == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    short, long = method.teacher.state_dict(), method.long_teacher.state_dict()
    labels = np.array([record.pid for record in synthetic_task(2).records])
    cameras = np.array([record.camid for record in synthetic_task(2).records])
    figures, states = [], []
    for share in SHARES:
        state = {}
        for name, value in short.items():
            rows = long[name] if name != "classifier.weight" else torch.cat([long[name], value[len(long[name]) :]])
            state[name] = (share * rows + (1 - share) * value).to(value.dtype)
        network = copy.deepcopy(method.teacher)
        network.load_state_dict(state)
        features = network.model.extract(PATHS)
        figures.append(evaluate(features, features, labels, labels, cameras, cameras, metric="euclidean").mAP)
        states.append(state)
    old = method.old_network(synthetic_task(2)).state_dict()
    name = "model.backbone.0.weight"
    best = int(np.argmax(figures))  # the first of equal ones
    torch.testing.assert_close(old[name], states[best][name])
    assert method.figures()["long_share"] == SHARES[best]


def test_self_retrieval_without_cameras() -> None:
    method = build_method("lstkc_pp", model())
    learn(method, 1)
    alone = Task(0, "", tuple(Record(each.path, each.pid, 0) for each in synthetic_task(0).records))
    features = method.model.extract([each.path for each in alone.records])
    labels = np.array([each.pid for each in alone.records])
    each = np.arange(len(labels))
    expected = evaluate(features, features, labels, labels, each, each, metric="euclidean").mAP
    assert method.self_retrieval(method.teacher, alone) == pytest.approx(expected)
    single = Task(0, "", tuple(Record(each.path, number, 0) for number, each in enumerate(alone.records)))
    assert method.self_retrieval(method.teacher, single) == 0
