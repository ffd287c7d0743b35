"""From a task's images to batches on their way to the network."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lreid.data.images import Images
from lreid.data.samplers import IdentitySampler, StreamSampler
from lreid.data.transforms import Augment
from lreid.errors import InputError

# The official code updates its erasing schedule when it rebuilds the loader, every 10 of 600 epochs.
PROGRESS_STEPS = 60


class Batch(NamedTuple):
    """What a method is given at every step.

    Attributes:
        images: (B, 3, H, W) float32, augmented and normalised.
        labels: (B,) int64 class labels, on the CPU.
        num_support: the first so many images of each label are its support, the rest its queries; 0 where the
            method asked for no episodes.
        views: the batch is so many views of the same images, one after the other: B = views * n.
        pixels, paths: (n, H, W, 3) uint8 on the CPU, the images as they were before augmentation, and their
            files; for methods that ask for them.
        exemplars: (B,) int64 on the CPU, the row in the method's memory of each image, -1 for images of the task; None
            where nobody said.
    """

    images: Tensor
    labels: Tensor
    num_support: int = 0
    views: int = 1
    pixels: Tensor | None = None
    paths: tuple[str, ...] = ()
    exemplars: Tensor | None = None


class WithExemplars(Sequence[np.ndarray]):
    """The images of a task, followed by exemplars of earlier ones.

    Args:
        images: of the task.
        exemplars: (n, H, W, 3) uint8, of the same size.
        labels: their class labels (n,) int64.
    """

    def __init__(self, images: Images, exemplars: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.exemplars = images, exemplars
        self.pids = np.concatenate([images.pids, labels])

    def __len__(self) -> int:
        return len(self.pids)

    def __getitem__(self, index: int) -> np.ndarray:
        own = len(self.images)
        return self.images[index] if index < own else self.exemplars[index - own]


class TaskBatches(Dataset[Batch]):
    """All batches of a task, from any epoch on. An item is a whole batch.

    Everything random about a batch follows from (seed, epoch, its number), so that neither the number of worker
    processes nor a break in between changes it.
    """

    def __init__(
        self, images: Images | WithExemplars, sampler: IdentitySampler | StreamSampler, augment: Augment, *,
        epochs: int, first_epoch: int = 0, views: int = 1, pixels: bool = False,
    ) -> None:  # fmt: skip
        self.images, self.sampler, self.augment = images, sampler, augment
        self.views, self.pixels = views, pixels
        self.epochs, self.first_epoch = epochs, first_epoch
        self.labels = images.pids
        self.own = len(images.images if isinstance(images, WithExemplars) else images)  # exemplars follow
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])  # number and batches of the epoch at hand

    def __len__(self) -> int:
        return (self.epochs - self.first_epoch) * self.sampler.batches_per_epoch

    def __getitem__(self, index: int) -> Batch:
        epoch, number = divmod(index, self.sampler.batches_per_epoch)
        epoch += self.first_epoch
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.sampler.epoch(epoch))
        chosen = self._epoch[1][number]  # (B,)
        progress = progress_of(epoch, self.epochs)
        seed = np.random.SeedSequence([*self.sampler.seed, epoch, number]).generate_state(1)[0]
        pixels = [self.images[row] for row in chosen]
        images = self.augment(self.views * pixels, seed=int(seed), progress=progress)
        exemplars = np.tile(np.maximum(chosen - self.own, -1), self.views)  # (B,)
        return Batch(
            torch.from_numpy(images), torch.from_numpy(np.tile(self.labels[chosen], self.views)),
            self.sampler.num_support, self.views,
            torch.from_numpy(np.stack(pixels)) if self.pixels else None,
            tuple(self.images.records[row].path for row in chosen) if self.pixels else (),
            torch.from_numpy(exemplars),
        )  # fmt: skip


def progress_of(epoch: int, epochs: int) -> float:
    """Share of the epochs of a task that is done, as augmentation is told."""
    return int(PROGRESS_STEPS * epoch / epochs) / PROGRESS_STEPS


def batch_loader(batches: TaskBatches, *, workers: int, pin_memory: bool) -> Iterator[Batch]:
    """All batches of a task, in order; the worker processes live as long as the task.

    On Linux they are forked, so that they look at the decoded images of this process instead of a copy each.

    Raises:
        InputError: an image that is decoded only now cannot be read.
    """
    context = "fork" if workers > 0 and sys.platform == "linux" else None
    loader = DataLoader(
        _FaultsAsItems(batches), batch_size=None, num_workers=workers, pin_memory=pin_memory,
        multiprocessing_context=context,
    )  # fmt: skip
    for batch in loader:
        if isinstance(batch, InputError):
            raise batch
        yield batch


class _FaultsAsItems(Dataset[Batch | InputError]):
    """Hands bad input over, since torch makes a page of text of what a worker raises."""

    def __init__(self, batches: TaskBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch | InputError:
        try:
            return self.batches[index]
        except InputError as fault:
            return fault
