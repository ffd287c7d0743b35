"""From a task's images to batches on their way to the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lreid.data.images import Images
from lreid.data.samplers import IdentitySampler
from lreid.data.transforms import Augment

# The official code updates its erasing schedule when it rebuilds the loader, every 10 of 600 epochs.
PROGRESS_STEPS = 60


class Batch(NamedTuple):
    """What a method is given at every step.

    Attributes:
        images: (B, 3, H, W) float32, augmented and normalised.
        labels: (B,) int64 class labels, on the CPU.
        num_support: the first so many images of each label are its support, the rest its queries; 0 where the
            method asked for no episodes.
    """

    images: Tensor
    labels: Tensor
    num_support: int


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
        self, images: Images | WithExemplars, sampler: IdentitySampler, augment: Augment, *, epochs: int,
        first_epoch: int = 0,
    ) -> None:  # fmt: skip
        self.images, self.sampler, self.augment = images, sampler, augment
        self.epochs, self.first_epoch = epochs, first_epoch
        self.labels = images.pids
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])  # number and batches of the epoch at hand

    def __len__(self) -> int:
        return (self.epochs - self.first_epoch) * self.sampler.batches_per_epoch

    def __getitem__(self, index: int) -> Batch:
        epoch, number = divmod(index, self.sampler.batches_per_epoch)
        epoch += self.first_epoch
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.sampler.epoch(epoch))
        chosen = self._epoch[1][number]  # (B,)
        progress = int(PROGRESS_STEPS * epoch / self.epochs) / PROGRESS_STEPS
        seed = np.random.SeedSequence([*self.sampler.seed, epoch, number]).generate_state(1)[0]
        images = self.augment([self.images[i] for i in chosen], seed=int(seed), progress=progress)
        return Batch(
            torch.from_numpy(images), torch.from_numpy(self.labels[chosen]), self.sampler.num_support
        )


def batch_loader(batches: TaskBatches, *, workers: int, pin_memory: bool) -> DataLoader[Batch]:
    """A loader over all batches of a task, in order; its workers live as long as the task."""
    return DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=pin_memory)
