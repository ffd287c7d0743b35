"""MAS, EWC and SI: the importance of weights and the penalty of their changes against loops in float64."""

import copy

import numpy as np
import pytest
import torch
from family import batches, model
from synthetic_tasks import learn, steps_of, synthetic_task
from torch.optim import SGD

from lreid.errors import ArgumentError
from lreid.methods import Method, build_method
from lreid.methods.mas import trained

Loop = dict[str, np.ndarray]


def values(tensors: dict[str, torch.Tensor]) -> Loop:
    return {name: each.detach().double().numpy().copy() for name, each in tensors.items()}


def measured_by_loop(name: str, method: Method, task: int) -> Loop:
    """The mean over images of |d |F|²| or (d log p)² / 2, where an image and a weight tensor are taken one by one."""
    network = copy.deepcopy(method.model).double().eval()
    rows = method.classifier.weight.detach().double()[4 * task :]
    sums = {key: np.zeros(each.shape) for key, each in network.named_parameters() if each.requires_grad}
    for record in (records := synthetic_task(task).records):
        features = network.neck(network(network.ready([record.path])))[0]
        logits = rows @ features
        log_p = logits[record.pid - 4 * task] - torch.log(torch.exp(logits).sum())
        output = (features**2).sum() if name == "mas" else log_p
        for key in sums:
            (gradient,) = torch.autograd.grad(output, network.get_parameter(key), retain_graph=True)
            sums[key] += (gradient.abs() if name == "mas" else gradient**2 / 2).numpy() / len(records)
    return sums


def same(found: dict[str, torch.Tensor], expected: Loop) -> None:
    assert found.keys() == expected.keys() and len(expected) > 2
    for name, each in expected.items():
        assert np.abs(each).max() > 0
        np.testing.assert_allclose(found[name].detach().numpy(), each, rtol=1e-3, atol=1e-4 * np.abs(each).max())


@pytest.mark.parametrize("name", ["mas", "ewc"])
def test_importance_is_the_decayed_sum_of_mean_gradients(name: str) -> None:
    method = build_method(name, model(neck=True), decay=0.5)
    learn(method, 1, exemplars=False)
    same(method.importance, measured_by_loop(name, method, 0))
    before = values(method.importance)
    method.model.train()
    method.begin_task(synthetic_task(1))
    with torch.no_grad():
        for each in method.model.parameters():
            each.add_(0.01)
    method.end_task(synthetic_task(1))
    second = measured_by_loop(name, method, 1)
    same(method.importance, {key: 0.5 * before[key] + second[key] for key in second})


@pytest.mark.parametrize(("accumulated", "iterations"), [(1, 1), (2, 1), (1, 2)])
def test_path_integral_of_si_adds_gradient_times_change(accumulated: int, iterations: int) -> None:
    method = build_method("si", model(neck=True), damping=0.01, decay=0.5)
    importance: Loop = {}
    for task in (0, 1):
        method.begin_task(synthetic_task(task))
        method.model.train()
        optimizer = SGD(method.parameters(), lr=0.05)
        start = values(trained(method.model))
        path = {name: np.zeros(each.shape) for name, each in start.items()}
        for batch in steps_of(task, False):
            for _ in range(iterations):
                optimizer.zero_grad()
                for _ in range(accumulated):
                    terms = method.loss(batch)
                    method.total(terms).backward(retain_graph=True)
                assert ("penalty" in terms) == (task == 1)
                own = terms["softmax"] + terms["triplet"]
                gradients = torch.autograd.grad(own, list(trained(method.model).values()))
                before = values(trained(method.model))
                optimizer.step()
                after = values(trained(method.model))
                for name, gradient in zip(before, gradients, strict=True):
                    path[name] -= gradient.double().numpy() * (after[name] - before[name])
            for _ in range(accumulated):
                method.end_step(batch)
        same(method.path, path)
        method.end_task(synthetic_task(task))
        for name, each in after.items():
            measured = path[name] / ((each - start[name]) ** 2 + 0.01)
            importance[name] = np.maximum(0.5 * importance.get(name, 0) + measured, 0)
        same(method.importance, importance)
    assert any((each == 0).any() for each in importance.values()) and not method.path and not method.step


@pytest.mark.parametrize("name", ["mas", "ewc", "si"])
def test_penalty_is_the_weighted_squared_change(name: str) -> None:
    method = build_method(name, model(neck=True), strength=3.0)
    learn(method, 1, exemplars=False)
    method.begin_task(synthetic_task(1))
    anchor = values(trained(method.model))
    with torch.no_grad():
        for number, each in enumerate(trained(method.model).values()):
            each.add_(0.01 * (number + 1))
    (batch,) = batches(1, first_class=4)
    terms = method.loss(batch)
    importance, weights = values(method.importance), values(trained(method.model))
    expected = sum(
        each * (now - before) ** 2
        for key in anchor
        for each, now, before in zip(importance[key].flat, weights[key].flat, anchor[key].flat, strict=True)
    )
    assert terms["penalty"].item() == pytest.approx(expected, rel=1e-3) and expected > 0
    own = terms["softmax"] + terms["triplet"]
    assert method.total(terms).item() == pytest.approx((own + 3 * expected).item(), rel=1e-3)


def test_merged_adapters_are_refused() -> None:
    network = model(neck=True)
    network.adapter_merge = True
    with pytest.raises(ArgumentError, match="adapter_merge"):
        build_method("ewc", network)
