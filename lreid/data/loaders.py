"""Load the images of a task as batches for the network."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lreid.data.images import Images
from lreid.data.samplers import Sampler
from lreid.data.transforms import Augment, Changes
from lreid.errors import InputError
from lreid.utils.devices import to_device
from lreid.utils.extras import Extra

cv2 = Extra("cv2", "opencv")

# The official code updates its erasing schedule when it rebuilds the loader, every 10 of 600 epochs.
PROGRESS_STEPS = 60


class Batch(NamedTuple):
    """One batch of training images, the input of a method in one step.

    Attributes:
        images: (B, 3, H, W) float32 images, augmented and normalised. Until :meth:`to` is called, ``images`` may be
            uint8 images (B, H, W, 3) to which ``changes`` are not yet applied. Before :meth:`to` is called, ``images``
            may also be only those images of the batch that ``rows`` selects.
        labels: (B,) int64 class labels on the CPU. Because the labels are on the CPU, code that derives shapes from
            labels does not wait for a GPU. Copy the labels to a GPU with ``non_blocking=True``.
        num_support: number of support images per label; 0 for methods without episodes. For each label, the support
            images come first, followed by the query images.
        views: number of views per image, so that B = views * n. A batch contains the first views of all n images, then
            the second views of all images.
        pixels: (n, H, W, 3) uint8 images on the CPU before augmentation, or None if the method does not request them.
        paths: paths of the n images.
        exemplars: (B,) int64 on the CPU: each exemplar's index in the method's memory, or -1 for images of the task.
            The value is None if the indices are unknown.
        changes: flips, shifts and erased boxes that :meth:`to` will apply; None afterwards.
        rows: slice of the batch that ``images`` contains. If several processes train together, ``images`` contains only
            this process's rows.
    """

    images: Tensor
    labels: Tensor
    num_support: int = 0
    views: int = 1
    pixels: Tensor | None = None
    paths: tuple[str, ...] = ()
    exemplars: Tensor | None = None
    changes: Changes | None = None
    rows: slice = slice(None)

    def to(self, device: torch.device, augment: Augment) -> Batch:
        """Move the images to a device and augment them there.

        Rows of the batch that belong to other processes are filled with NaN, so that their accidental use is noticed.
        """
        images = to_device(self.images, device)
        if self.changes is not None:
            images = augment.on_device(images, self.changes)
        if len(images) < len(self.labels):
            height, width = images.shape[2:]
            whole = images.new_full((len(self.labels), height, width, 3), torch.nan).permute(0, 3, 1, 2)
            whole[self.rows] = images
            images = whole
        return self._replace(images=images, changes=None, rows=slice(None))


class WithExemplars(Sequence[np.ndarray]):
    """The images of a task, followed by exemplars of earlier tasks.

    Args:
        images: images of the task.
        exemplars: n images (H, W, 3) uint8, of the same size as the images of the task.
        labels: (n,) int64 class labels of the exemplars.
    """

    def __init__(self, images: Images, exemplars: Sequence[np.ndarray] | np.ndarray, labels: np.ndarray) -> None:
        self.images, self.exemplars = images, exemplars
        self.records = images.records  # of the images of the task
        self.pids = np.concatenate([images.pids, labels])

    def __len__(self) -> int:
        return len(self.pids)

    def __getitem__(self, index: int) -> np.ndarray:
        own = len(self.records)
        return self.images[index] if index < own else self.exemplars[index - own]


@dataclass(eq=False)
class TaskBatches(Dataset[Batch]):
    """A data set whose items are the batches of all epochs of a task.

    All random decisions for a batch depend only on the seed, the epoch and the number of the batch. The number of
    worker processes, or an interruption of the run, therefore does not change any batch.

    Args:
        first: number of batches to skip because the run finished them before an interruption.
        views, pixels: see :class:`~lreid.methods.Method`.
        on_device: whether to return uint8 images, whose augmentation :meth:`Batch.to` finishes on the device.

    Attributes:
        rows: rows of each batch that this process trains on, see :mod:`lreid.training.distributed`.
    """

    images: Images | WithExemplars
    sampler: Sampler
    augment: Augment
    _: KW_ONLY
    epochs: int
    first: int = 0
    views: int = 1
    pixels: bool = False
    on_device: bool = False
    rows: slice = field(default_factory=lambda: slice(None), init=False)

    def __post_init__(self) -> None:
        self.labels = self.images.pids
        self.own = len(self.images.records)  # exemplars follow
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])  # number and batches of the current epoch

    def __len__(self) -> int:
        return self.epochs * self.sampler.batches_per_epoch - self.first

    def __getitem__(self, index: int) -> Batch:
        epoch, number = divmod(self.first + index, self.sampler.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.sampler.epoch(epoch))
        chosen = self._epoch[1][number]  # (n,)
        seeds = np.random.SeedSequence([*self.sampler.seed, epoch, number])
        seed, progress = int(seeds.generate_state(1)[0]), progress_of(epoch, self.epochs)
        options: dict[str, Any] = {"seed": seed, "progress": progress, "rows": self.rows}
        pixels = [self.images[row] for row in chosen]
        if self.on_device:
            images, changes = self.augment.left_to_device(self.views * pixels, **options)
        else:
            images, changes = torch.from_numpy(self.augment(self.views * pixels, **options)), None
        exemplars = np.tile(np.maximum(chosen - self.own, -1), self.views)  # (B,)
        return Batch(
            images,
            torch.from_numpy(np.tile(self.labels[chosen], self.views)),
            self.sampler.num_support,
            self.views,
            torch.from_numpy(np.stack(pixels)) if self.pixels else None,
            tuple(self.images.records[row].path if row < self.own else f"exemplar {row - self.own}" for row in chosen),
            torch.from_numpy(exemplars),
            changes,
            self.rows,
        )


def progress_of(epoch: int, epochs: int) -> float:
    """Compute the share of a task's epochs that are finished, which some augmentations use."""
    return int(PROGRESS_STEPS * epoch / epochs) / PROGRESS_STEPS


def batch_loader(batches: TaskBatches, *, workers: int, pin_memory: bool) -> Iterator[Batch]:
    """Yield all batches of a task in order; the same worker processes load all of them.

    On Linux, workers are forked, so they share the decoded images of this process without a copy.

    Raises:
        InputError: an image that is not cached cannot be read.
    """
    context = "fork" if workers > 0 and sys.platform == "linux" else None
    if workers > 0:
        with suppress(InputError):  # raised if OpenCV is not installed; then no setting is needed
            cv2.setNumThreads(0)  # a worker that is forked while an OpenCV thread holds a lock would wait forever
    # A loader draws one number from torch's global generator. A run that resumes within a task drew this number before
    # its checkpoint, so the loader must then draw from another generator.
    generator = torch.Generator() if batches.first else None
    loader = DataLoader(
        _FaultsAsItems(batches),
        batch_size=None,
        num_workers=workers,
        pin_memory=pin_memory,
        multiprocessing_context=context,
        worker_init_fn=_leave_signals_to_the_run,
        generator=generator,
    )
    for batch in loader:
        if isinstance(batch, InputError):
            raise batch
        yield batch


@contextmanager
def naming_dead_workers(workers: int) -> Iterator[None]:
    """Within a context, replace torch's error about a dead worker process by a one-line error.

    Raises:
        InputError: a worker has died.
    """
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise InputError(
            f"a loader process died ({str(error).splitlines()[0]}); the usual cause is too little memory or shared "
            f"memory: set a lower number than workers={workers}, or cache_gib=0, and continue with resume=True"
        ) from None


def _leave_signals_to_the_run(worker: int) -> None:
    """Ignore signals in a worker, because it must not end before the main process has saved a checkpoint."""
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)


class _FaultsAsItems(Dataset[Batch | InputError]):
    """Return errors about bad input as items; torch would print an error raised in a worker as a page of text."""

    def __init__(self, batches: TaskBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch | InputError:
        try:
            return self.batches[index]
        except InputError as fault:
            return fault
