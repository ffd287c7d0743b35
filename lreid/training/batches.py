"""Make the batches of a task: which images they hold, and their loaders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid import distributed
from lreid.data.disk_cache import DiskCache
from lreid.data.images import Images
from lreid.data.loaders import TaskBatches, WithExemplars
from lreid.data.records import Record, Task
from lreid.data.samplers import CameraSampler, EpisodeSampler, IdentitySampler, Passes, Sampler, StreamSampler
from lreid.data.transforms import Augment
from lreid.devices import to_device
from lreid.errors import ArgumentError, counted
from lreid.methods import Method


@dataclass(frozen=True)
class Batching:
    """How tasks become batches, whatever the method.

    Attributes:
        epochs: of a task; ``first_epochs`` of the first one, where that is above 0.
        seed: of the run.
        height, width: of the images, in pixels.
        augment: what is done to them.
        on_device: leave augmentation to the device.
        cache_gib, disk: where decoded images are kept, see :class:`~lreid.data.images.Images`.
        skip_bad: leave out images that cannot be read.
        episode: ``identities``, ``num_support`` and ``num_query`` of :class:`~lreid.data.samplers.EpisodeSampler`.
        batch: ``identities`` and ``images`` of :class:`~lreid.data.samplers.IdentitySampler`.
        other_cameras, neighbours: draw these batches by :class:`~lreid.data.samplers.CameraSampler`.
        segment: images a step of a stream; 0 for batches (a method that needs a stream: as many as a batch has).
        correlation: of :class:`~lreid.data.samplers.StreamSampler`.
        passes, steps: what an epoch is, see :class:`~lreid.data.samplers.IdentitySampler` and
            :class:`~lreid.data.samplers.Sampler`.
    """

    epochs: int
    seed: int
    height: int
    width: int
    augment: Augment
    on_device: bool = False
    cache_gib: float = 4.0
    disk: DiskCache = field(default_factory=DiskCache)
    skip_bad: bool = False
    episode: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    other_cameras: bool = False
    neighbours: int = 1
    segment: int = 0
    correlation: int = 1
    first_epochs: int = 0
    passes: Passes = "identities"
    steps: int = 0

    def epochs_of(self, task: int) -> int:
        """Epochs of a task, from 0."""
        return self.first_epochs if task == 0 and self.first_epochs else self.epochs

    def sampler(
        self, method: Method, task: Task, records: Sequence[Record], exemplars: Sequence[int] | np.ndarray = ()
    ) -> Sampler:
        """What draws the batches of a task from the records of its images and the class labels of exemplars.

        Raises:
            ArgumentError: the task or a batch is too small, or does not fit the method or the number of processes.
        """
        labels = [record.pid for record in records]
        common: dict[str, Any] = {
            "seed": (self.seed, task.index),
            "exemplars": exemplars,
            "exemplar_share": method.exemplar_share or 0.0,
            "steps": self.steps,
        }
        if self.segment or method.batches == "stream":
            if method.batches == "episodes":
                raise ArgumentError(
                    "segment",
                    "is above 0, but the method learns from episodes of support and query images, which a stream has "
                    "not; set it to 0, or take another method, such as er",
                )
            segment = self.segment or self.batch["identities"] * self.batch["images"]
            stream = StreamSampler(labels, segment=segment, correlation=self.correlation, **common)
            if _is_too_small(stream.fewest_images, method):
                remedy = "set it to 3 or more" if len(labels) > 1 else "make fewer tasks"
                raise ArgumentError(
                    "segment" if self.segment else "images",
                    f"makes a batch of a single image of task {task.name!r} ({counted(len(labels), 'image')} in all), "
                    f"which BatchNorm cannot normalise; {remedy}",
                )
            return stream
        common |= {"task_name": task.name, "passes": self.passes}
        sampler: IdentitySampler
        if method.batches == "episodes":
            sampler = EpisodeSampler(labels, **self.episode, **common)
        elif self.other_cameras:
            cameras = [record.camid for record in records]
            sampler = CameraSampler(labels, cameras=cameras, neighbours=self.neighbours, **self.batch, **common)
        elif self.neighbours > 1:
            raise ArgumentError(
                "neighbours",
                f"is {self.neighbours}, but batches are made without a look at cameras; set BATCH.OTHER_CAMERAS True",
            )
        else:
            sampler = IdentitySampler(labels, **self.batch, **common)
        images = sampler.images_per_batch
        if _is_too_small(images, method):
            raise ArgumentError(
                "images", "makes batches of a single image, which BatchNorm cannot normalise; set it to 2 or more"
            )
        if images % distributed.world():
            raise ArgumentError(
                "identities",
                f"make a batch of {images} images, which cannot be dealt evenly to {distributed.world()} processes; "
                "change it or the number of processes",
            )
        return sampler

    def replayed(self, pixels: Sequence[np.ndarray], *, device: torch.device, seed: int, progress: float) -> Tensor:
        """Images (n, H, W, 3) uint8 that a method draws by itself, augmented as those of batches: (n, 3, H, W)."""
        if not self.on_device:
            return to_device(torch.from_numpy(self.augment(pixels, seed=seed, progress=progress)), device)
        left, changes = self.augment.left_to_device(pixels, seed=seed, progress=progress)
        return self.augment.on_device(to_device(left, device), changes)

    def epoch_steps(self, method: Method, task: Task) -> int:
        """Batches of an epoch of a task.

        Raises:
            ArgumentError: as :meth:`sampler`.
        """
        return self.sampler(method, task, task.records).batches_per_epoch

    def batches(self, method: Method, task: Task, *, first: int = 0) -> TaskBatches:
        """All batches of a task for a method, from number ``first`` on, with exemplars where it wants them.

        Raises:
            InputError: an image cannot be read, or as :meth:`sampler`.
        """
        images = Images(
            task.records,
            height=self.height,
            width=self.width,
            cache_gib=self.cache_gib,
            disk=self.disk,
            skip_bad=self.skip_bad,
        )
        memory = method.memory if method.exemplar_share is not None else None
        sampler = self.sampler(method, task, images.records, memory.labels if memory else ())
        return TaskBatches(
            WithExemplars(images, memory.images, memory.labels) if memory else images,
            sampler,
            self.augment,
            epochs=self.epochs_of(task.index),
            first=first,
            views=method.views,
            pixels=method.pixels,
            on_device=self.on_device,
            rows=distributed.own_rows(),
        )


def _is_too_small(images: int, method: Method) -> bool:
    """Whether a method cannot learn from a batch of so many images; several processes need two for a variance."""
    return images < 2 > method.views and (distributed.world() > 1 or images < method.smallest_batch)
