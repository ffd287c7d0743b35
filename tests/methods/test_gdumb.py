"""GDumb: nothing is learned but from the memory, by a network that starts where the run did."""

import copy
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import task_of
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_tasks import synthetic_task
from test_er import new, segments

from lreid.data.records import Task
from lreid.memory import StreamMemory
from lreid.methods import Method


@given(labels=st.lists(st.integers(0, 4), max_size=60), budget=st.integers(0, 12), cut=st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_gdumb_memory_is_balanced(labels: list[int], budget: int, cut: int) -> None:
    """Of no identity are two more kept than of one that the stream had more of."""
    memory = StreamMemory(budget, "balanced", seed=1)
    for start in range(0, len(labels), cut):
        part = np.array(labels[start : start + cut])
        memory.add(np.zeros((len(part), 2, 2, 3), np.uint8) + part[:, None, None, None].astype(np.uint8), part)
    kept, seen = Counter(memory.labels.tolist()), Counter(labels)
    assert len(memory) == min(budget, len(labels))
    assert [int(image[0, 0, 0]) for image in memory.images] == memory.labels.tolist()
    for label, count in seen.items():
        assert kept[label] == count or kept[label] >= max(kept.values(), default=0) - 1
    numbers = memory.extras.get("numbers", np.empty(0)).astype(int)
    assert [labels[number] for number in numbers] == memory.labels.tolist()


def seen(method: Method, task: int, of: Callable[[int], Task] = task_of) -> None:
    method.begin_task(of(task))
    for batch in segments(task):
        terms = method.loss(batch)
        sum(terms.values()).backward()
        assert [value.item() for value in terms.values()] == [0.0]
        method.end_step(batch)


@pytest.mark.slow
def test_gdumb_trains_a_new_network_on_the_memory() -> None:
    method = new("gdumb", exemplars=8, passes=40, rate=0.05)
    before = {name: value.clone() for name, value in method.model.state_dict().items()}
    seen(method, 0)
    assert all(torch.equal(value, before[name]) for name, value in method.model.state_dict().items())
    method.finish_task(task_of(0))
    images = method.model.normalise(torch.from_numpy(np.array(method.memory.images)))
    with torch.no_grad():
        scores = method.class_scores(torch.from_numpy(method.model.extract(images)))
    assert (scores.argmax(1).numpy() == method.memory.labels).all()
    seen(method, 1)
    assert Counter(method.memory.labels.tolist()) == dict.fromkeys(range(8), 1)
    other = new("gdumb", exemplars=8, passes=40, rate=0.05)
    other.load_state_dict(copy.deepcopy(method.state_dict()))  # with another network, which plays no part
    for each in (method, other):
        torch.manual_seed(3)  # the classifier is drawn
        each.finish_task(task_of(1))
    for one, two in zip(method.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_gdumb_initial_rows_are_mean_directions_of_stored_images() -> None:
    method = new("gdumb", exemplars=8, passes=1, rate=1e-12, least_rate=1e-12, decay=0.0, reid_head=True)
    for task in range(2):
        seen(method, task, synthetic_task)
        method.finish_task(synthetic_task(task))
    method.model.load_state_dict(method.start)  # the pass has moved its statistics
    images = method.model.normalise(torch.from_numpy(np.array(method.memory.images)))
    features, labels = torch.from_numpy(method.model.extract(images)), torch.from_numpy(method.memory.labels)
    for label in range(8):
        direction = F.normalize(features[labels == label].mean(0), dim=0)
        torch.testing.assert_close(method.classifier.weight[label], direction, rtol=1e-4, atol=1e-5)


def test_gdumb_rates_are_warmup_and_cosine_with_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    method = new("gdumb", exemplars=4, passes=9, batch=4, rate=1e-3, least_rate=1e-4)
    seen(method, 0)
    rates: list[float] = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: (rates.append(self.param_groups[0]["lr"]), step(self)))
    method.finish_task(task_of(0))

    def cosine(done: int, period: int) -> float:
        return 1e-4 + (1e-3 - 1e-4) * (1 + np.cos(np.pi * done / period)) / 2

    expected = [1e-4, 1e-3, *(cosine(each, 2) for each in range(2)), *(cosine(each, 4) for each in range(4)), 1e-3]
    assert rates == pytest.approx(expected)


def test_gdumb_first_step_equals_sgd() -> None:
    method = new("gdumb", exemplars=6, passes=1, batch=6, rate=0.5, decay=0.0)
    seen(method, 0)
    twin = copy.deepcopy(method)
    torch.manual_seed(9)
    method.finish_task(task_of(0))
    torch.manual_seed(9)
    twin.classifier = twin.new_classifier()
    twin.classifier.grow(4)
    twin.model.train()
    order = torch.randperm(6, generator=twin.generator).numpy()
    images = twin.model.normalise(torch.from_numpy(twin.memory.images[order]))
    F.cross_entropy(twin.logits(images), torch.from_numpy(twin.memory.labels[order])).backward()
    length = torch.stack([part.grad.norm() for part in twin.parameters()]).norm()
    for one, two in zip(method.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, two - 0.05 * two.grad * min(1.0, 10 / length.item()), rtol=1e-4, atol=1e-6)
