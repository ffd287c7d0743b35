"""Tasks of drawn images, for methods that look at them once more when a task is over."""

from collections.abc import Callable

import torch
from family import batches, train

from lreid.data.loaders import Batch
from lreid.data.records import Record, Task
from lreid.data.synthetic import load_synthetic
from lreid.methods import Method

DRAWN = load_synthetic(
    "plaza", train_identities=12, test_identities=1, images_per_identity=3, distractors=0, seed=0
).train
PIDS = sorted({record.pid for record in DRAWN})


def synthetic_task(index: int) -> Task:
    """Four identities with three images each."""
    labels = {pid: label for label, pid in enumerate(PIDS) if label // 4 == index}
    records = (Record(each.path, labels[each.pid], each.camid) for each in DRAWN if each.pid in labels)
    return Task(index, f"task {index}", tuple(records))


def joined(*parts: Batch) -> Batch:
    """One batch of several."""
    return parts[0]._replace(
        images=torch.cat([part.images for part in parts]), labels=torch.cat([part.labels for part in parts])
    )


def steps_of(task: int, exemplars: bool, steps: int = 3) -> list[Batch]:
    """Random images of the identities of a task, with those of all tasks before where there are exemplars."""
    own = batches(steps, seed=task, first_class=4 * task)
    for past in range(task if exemplars else 0):
        old = batches(steps, seed=10 * task + past, first_class=4 * past)
        own = [joined(*pair) for pair in zip(own, old, strict=True)]
    return own


def learn(method: Method, tasks: int, *, exemplars: bool) -> list[dict[str, float]]:
    """Loss terms of all steps over so many tasks."""
    return learn_from(method, tasks, lambda index: steps_of(index, exemplars))


def learn_from(method: Method, tasks: int, batches_of: Callable[[int], list[Batch]]) -> list[dict[str, float]]:
    """The same from other batches; those of a task are asked for when it has begun."""
    torch.manual_seed(3)  # new rows of classifiers are drawn at every task
    history = []
    for index in range(tasks):
        method.begin_task(synthetic_task(index))
        history += train(method, batches_of(index))
        method.end_task(synthetic_task(index))
    return history


def replayed(method: Method, task: int, steps: int = 3) -> list[Batch]:
    """Random images of the task, with images of the memory (as many as fit) behind them as the loader has it."""
    own, count = steps_of(task, exemplars=False, steps=steps), min(8, method.exemplars)
    whole = []
    for number, batch in enumerate(own):
        rows = (torch.arange(count) * 3 + number) % max(method.exemplars, 1)
        stored = method.augmented(method.memory.images[rows.numpy()], seed=0) if count else batch.images[:0]
        whole.append(
            batch._replace(
                images=torch.cat([batch.images, stored]),
                labels=torch.cat([batch.labels, torch.from_numpy(method.memory.labels)[rows[:count]]]),
                exemplars=torch.cat([torch.full((12,), -1), rows[:count]]),
                num_support=0,
            )
        )
    return whole


def learn_replayed(method: Method, tasks: int) -> list[dict[str, float]]:
    """Loss terms step by step over so many tasks."""
    return learn_from(method, tasks, lambda index: replayed(method, index))
