"""The base of LSTKC and its kin: rows of the classifier, one softmax, and the average after a task."""

import copy

import pytest
import torch
import torch.nn.functional as F
from family import DIM, assert_terms, batch_normed, model
from fusing import begun, copied, learn, same_parts
from synthetic_tasks import synthetic_task

from lreid.losses import batch_hard_triplet_loss, lstkc_alpha
from lreid.methods import build_method
from lreid.models.adapt import norm_statistics


def test_terms() -> None:
    method = build_method("fused_ft", model())
    batch = begun(method, 1)
    terms = method.loss(batch)
    assert set(terms) == {"softmax", "triplet"}
    features = method.model(batch.images)
    logits = batch_normed(features) * method.network.neck.weight @ method.classifier.weight.T  # all eight identities
    assert_terms(terms, 1e-4, softmax=F.cross_entropy(logits, batch.labels))
    assert_terms(terms, triplet=batch_hard_triplet_loss(features, batch.labels, margin=None))


@pytest.mark.parametrize("name", ["fused_ft", "dkp"])  # which has a head of deviations, too
def test_fused_network_is_the_average_with_the_initial_network_of_the_task(name: str) -> None:
    method = build_method(name, model(), fusion=0.25)
    begun(method, 1)
    new, old = copied(method.network.state_dict()), copied(method.teacher.state_dict())
    method.finish_task(synthetic_task(1))
    for key, value in method.network.state_dict().items():
        if key == "classifier.weight":
            torch.testing.assert_close(value[4:], new[key][4:])
            torch.testing.assert_close(value[:4], 0.25 * new[key][:4] + 0.75 * old[key])
        elif value.is_floating_point():
            torch.testing.assert_close(value, 0.25 * new[key] + 0.75 * old[key])
    fused = copied(method.network.state_dict())
    method.end_task(synthetic_task(1))
    torch.testing.assert_close(dict(method.teacher.state_dict()), fused)  # the next task begins with it


def test_first_task_and_fusion_1_keep_the_network() -> None:
    method = build_method("fused_ft", model(), fusion=1.0)
    for task in range(2):
        begun(method, 1) if task else learn(method, 1)
        kept = copied(method.model.state_dict())
        method.finish_task(synthetic_task(task))
        torch.testing.assert_close(dict(method.model.state_dict()), kept, rtol=0, atol=0)


def test_measured_alpha_equals_lstkc() -> None:
    method = build_method("fused_ft", model(), measured_fusion=True)
    begun(method, 1)
    paths = [record.path for record in synthetic_task(1).records]
    new, old = copy.deepcopy(method.model), copy.deepcopy(method.teacher.model)
    alpha = lstkc_alpha(*(torch.from_numpy(each.extract(paths)) for each in (new, old)))
    method.finish_task(synthetic_task(1))
    name = "backbone.0.weight"
    expected = alpha * new.state_dict()[name] + (1 - alpha) * old.state_dict()[name]
    torch.testing.assert_close(method.model.state_dict()[name], expected)
    assert method.figures() == {"share": alpha}


def test_adapt_norm_estimates_statistics_after_the_average() -> None:
    plain, adapted = (build_method("fused_ft", model(), adapt_norm=each) for each in (False, True))
    for method in (plain, adapted):
        begun(method, 0)
        method.finish_task(synthetic_task(0))
    expected = norm_statistics(plain.model, [record.path for record in synthetic_task(0).records])
    state = adapted.model.state_dict()
    for name, value in plain.model.state_dict().items():
        if name in expected:
            torch.testing.assert_close(state[name], torch.from_numpy(expected[name]))
        else:
            assert state[name].equal(value)


def test_later_rate_applies_after_the_first_task() -> None:
    method = build_method("fused_ft", model(), later_rate=0.01)
    factors = []
    for task in range(2):
        factors += [group["rate_factor"] for group in method.parameters()]
        learn(method, task + 1, first=task)
    assert factors == [1.0, 0.01]


def test_class_scores_use_running_statistics() -> None:
    method = build_method("fused_ft", model())
    learn(method, 1)
    features = torch.randn(3, DIM)
    before = copied(method.network.neck.state_dict())
    one = method.class_scores(features)
    torch.testing.assert_close(one[:1], method.class_scores(features[:1]))
    torch.testing.assert_close(dict(method.network.neck.state_dict()), before)
    assert method.network.neck.training


def test_fused_ft_equals_bot_in_the_first_task() -> None:
    """The neck is the method's own, the rest is BoT-FT."""
    base = build_method("bot_ft", model(neck=True))
    method = build_method("fused_ft", model(), label_smoothing=0.1, soft_margin=False)
    same_parts(learn(base, 1), learn(method, 1))
