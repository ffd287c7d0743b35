"""Tasks of drawn images for methods that fuse networks, and batches that carry pixels."""

import torch
from family import batches, train
from synthetic_tasks import synthetic_task
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.methods import Method


def with_pixels(batch: Batch, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    count = len(batch.labels)
    return batch._replace(pixels=torch.randint(256, (count, 32, 16, 3), generator=generator, dtype=torch.uint8))


def steps_of(task: int, steps: int = 3) -> list[Batch]:
    return [with_pixels(batch, task) for batch in batches(steps, seed=task, first_class=4 * task)]


def learn(method: Method, tasks: int, steps: int = 3, first: int = 0) -> list[dict[str, float]]:
    """Loss terms of all steps over tasks, with all hooks in the order of the trainer."""
    history = []
    for index in range(first, tasks):
        torch.manual_seed(index)  # of new rows of classifiers
        method.begin_task(synthetic_task(index))
        history += train(method, steps_of(index, steps))
        method.finish_task(synthetic_task(index))
        method.end_task(synthetic_task(index))
    return history


def begun(method: Method, task: int, steps: int = 3) -> Batch:
    """Learns up to the middle of a task; a further batch of it."""
    learn(method, task)
    torch.manual_seed(task)
    method.begin_task(synthetic_task(task))
    train(method, steps_of(task, steps))
    (batch,) = steps_of(task, 1)
    return batch


def same_parts(one: list[dict[str, float]], other: list[dict[str, float]]) -> None:
    """The terms of one history are in the other, bit for bit."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a == {name: b[name] for name in a}


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
