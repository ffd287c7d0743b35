"""Tiny networks, batches and steps that the tests of methods share."""

import pytest
import torch
from tiny import Few
from torch import Tensor
from torch.optim import Adam

from lreid.data.loaders import Batch
from lreid.data.records import Record, Task
from lreid.methods import Method
from lreid.models import Embedder

DIM = Few.dim
TASK = Task(0, "first", ())


def task_of(index: int, classes: int = 4) -> Task:
    """A task of so many identities with one image each."""
    labels = range(index * classes, (index + 1) * classes)
    return Task(index, f"task {index}", tuple(Record("", label, 0) for label in labels))


def model(seed: int = 0, *, neck: bool = False) -> Embedder:
    torch.manual_seed(seed)
    return Embedder("few", height=32, width=16, neck=neck)


def batches(number: int, seed: int = 1, first_class: int = 0) -> list[Batch]:
    """Four identities with three images each, two of them support."""
    generator = torch.Generator().manual_seed(seed)
    labels = first_class + torch.arange(4).repeat_interleave(3)
    return [Batch(torch.randn(12, 3, 32, 16, generator=generator), labels, 2) for _ in range(number)]


def assert_terms(terms: dict[str, Tensor], rel: float = 1e-5, **expected: Tensor) -> None:
    """Compare loss terms with their expected values."""
    found = {name: terms[name].item() for name in expected}
    assert found == pytest.approx({name: value.item() for name, value in expected.items()}, rel=rel)


def batch_normed(features: Tensor) -> Tensor:
    """Normalise by the mean and variance of the batch."""
    return (features - features.mean(0)) / (features.var(0, unbiased=False) + 1e-5).sqrt()


def train(method: Method, steps: list[Batch]) -> list[dict[str, float]]:
    """Loss terms step by step."""
    method.model.train()
    optimizer = Adam(method.parameters(), lr=1e-3)
    history = []
    for batch in steps:
        terms = method.loss(batch)
        optimizer.zero_grad()
        sum(method.weights.get(name, 1.0) * term for name, term in terms.items()).backward()
        optimizer.step()
        method.end_step(batch)
        history.append({name: term.item() for name, term in terms.items()})
    return history


def learn(method: Method, tasks: int, steps: int = 3) -> list[dict[str, float]]:
    """Loss terms step by step over whole tasks of four identities each."""
    history = []
    for index in range(tasks):
        method.begin_task(task_of(index))
        history += train(method, batches(steps, seed=index, first_class=4 * index))
        method.end_task(task_of(index))
    return history
