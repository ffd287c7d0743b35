"""Build the batches of a task from a config: samplers, images and augmentation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.config import find_config
from lreid.config_keys import BatchSection, DataSection, EpisodeSection, InputSection, StreamSection, TrainSection
from lreid.data.images import Images
from lreid.data.loaders import TaskBatches, WithExemplars
from lreid.data.records import Record, Task
from lreid.data.samplers import CameraSampler, EpisodeSampler, IdentitySampler, Sampler, StreamSampler
from lreid.data.transforms import Augment, load_pipeline
from lreid.errors import ArgumentError, InputError, counted
from lreid.methods import Method
from lreid.training import distributed
from lreid.utils.devices import to_device


@dataclass
class Batching:
    """Options of a task's training batches, which apply to all methods.

    Attributes:
        train, data, input, episode, batch, stream: the config sections of these names.
        make_sampler: function that creates the sampler instead of :meth:`sampler`, whose arguments it gets.
        augment: augmentation of the training images.
        on_device: whether augmentation runs on ``device`` instead of the CPU (``DATA.AUGMENT_ON``).
    """

    device: torch.device
    seed: int = 0
    train: TrainSection = field(default_factory=TrainSection)
    data: DataSection = field(default_factory=DataSection)
    input: InputSection = field(default_factory=InputSection)
    episode: EpisodeSection = field(default_factory=EpisodeSection)
    batch: BatchSection = field(default_factory=BatchSection)
    stream: StreamSection = field(default_factory=StreamSection)
    make_sampler: Callable[..., Sampler] | None = None

    augment: Augment = field(init=False)
    on_device: bool = field(init=False)

    def __post_init__(self) -> None:
        keys, augment_on = self.input, self.data.AUGMENT_ON
        values = {f"INPUT.{name}": keys[name] for name in ("HEIGHT", "WIDTH", "MEAN")}
        try:
            files = [find_config(name) for name in keys.PIPELINE if name]
        except InputError as error:
            raise InputError(f"INPUT.PIPELINE: {error}") from None
        steps = [step for file in files for step in load_pipeline(file, values)]
        self.augment = Augment(steps, mean=keys.MEAN, std=keys.STD, name=", ".join(map(str, files)))
        self.augment.check(keys.HEIGHT, keys.WIDTH)
        self.on_device = augment_on == "device" or (augment_on == "auto" and self.device.type == "cuda")

    def epochs_of(self, task: int) -> int:
        """Number of epochs of a task; tasks count from 0."""
        return self.train.FIRST_EPOCHS if task == 0 and self.train.FIRST_EPOCHS else self.train.EPOCHS

    def sampler(
        self, method: Method, task: Task, records: Sequence[Record], exemplars: Sequence[int] | np.ndarray = ()
    ) -> Sampler:
        """Create the sampler of a task's batches from the image records and the labels of exemplars."""
        if self.make_sampler is not None:
            return self.make_sampler(method, task, records, exemplars)
        labels = [record.pid for record in records]
        common: dict[str, Any] = {
            "seed": (self.seed, task.index),
            "exemplars": exemplars,
            "exemplar_share": method.exemplar_share or 0.0,
            "steps": self.train.EPOCH_STEPS,
        }
        if self.stream.SEGMENT or method.batches == "stream":
            return self._stream(method, task, labels, common)
        common |= {"task_name": task.name, "passes": self.train.EPOCH_COVERS}
        episode, batch = self.episode, self.batch
        sampler: IdentitySampler
        if method.batches == "episodes":
            common |= {"num_support": episode.SUPPORT, "num_query": episode.QUERY}
            sampler = EpisodeSampler(labels, identities=episode.IDENTITIES, **common)
        elif batch.OTHER_CAMERAS:
            common |= {"images": batch.IMAGES, "neighbours": batch.NEIGHBOURS}
            cameras = [record.camid for record in records]
            sampler = CameraSampler(labels, cameras=cameras, identities=batch.IDENTITIES, **common)
        else:
            if batch.NEIGHBOURS > 1:
                fault = f"is {batch.NEIGHBOURS}, but batches ignore cameras; set BATCH.OTHER_CAMERAS True"
                raise ArgumentError("neighbours", fault)
            sampler = IdentitySampler(labels, identities=batch.IDENTITIES, images=batch.IMAGES, **common)
        images = sampler.images_per_batch
        if _is_too_small(images, method):
            raise ArgumentError("images", "makes batches of one image, which BatchNorm refuses; set it to 2 or more")
        if images % distributed.world():
            raise ArgumentError(
                "identities",
                f"make a batch of {images} images, which cannot be shared evenly by {distributed.world()} processes; "
                "change it or the number of processes",
            )
        return sampler

    def _stream(self, method: Method, task: Task, labels: Sequence[int], common: dict[str, Any]) -> StreamSampler:
        if method.batches == "episodes":
            raise ArgumentError(
                "segment",
                "is above 0, but the method trains on episodes of support and query images, which a stream does "
                "not have; set it to 0, or use another method, such as er",
            )
        segment = self.stream.SEGMENT or self.batch.IDENTITIES * self.batch.IMAGES
        stream = StreamSampler(labels, segment=segment, correlation=self.stream.CORRELATION, **common)
        if _is_too_small(stream.fewest_images, method):
            remedy = "set it to 3 or more" if len(labels) > 1 else "make fewer tasks"
            raise ArgumentError(
                "segment" if self.stream.SEGMENT else "images",
                f"makes a batch of a single image of task {task.name!r} ({counted(len(labels), 'image')} in all), "
                f"which BatchNorm cannot normalise; {remedy}",
            )
        return stream

    def replayed(self, pixels: Sequence[np.ndarray], *, seed: int, progress: float) -> Tensor:
        """Augment images (n, H, W, 3) uint8 from a method's memory like training images; return (n, 3, H, W)."""
        if not self.on_device:
            return to_device(torch.from_numpy(self.augment(pixels, seed=seed, progress=progress)), self.device)
        prepared, changes = self.augment.left_to_device(pixels, seed=seed, progress=progress)
        return self.augment.on_device(to_device(prepared, self.device), changes)

    def epoch_steps(self, method: Method, task: Task) -> int:
        """Number of batches per epoch of a task, with the exemplars that the memory contains now."""
        stored = method.memory.labels if method.exemplar_share is not None else ()
        return self.sampler(method, task, task.records, stored).batches_per_epoch

    def batches(self, method: Method, task: Task, *, first: int = 0) -> TaskBatches:
        """Create the batches of a task from batch number ``first`` on, including exemplars if the method adds them.

        Args:
            method, task: the method, and the task whose images the batches contain.
            first: number of the first batch.
        """
        images = Images(
            task.records,
            height=self.input.HEIGHT,
            width=self.input.WIDTH,
            cache_gib=self.data.CACHE_GIB,
            skip_bad=self.data.SKIP_BAD_IMAGES,
        )
        memory = method.memory if method.exemplar_share is not None else None
        sampler = self.sampler(method, task, images.records, memory.labels if memory else ())
        batches = TaskBatches(
            WithExemplars(images, memory.images, memory.labels) if memory else images,
            sampler,
            self.augment,
            epochs=self.epochs_of(task.index),
            first=first,
            views=method.views,
            pixels=method.pixels,
            on_device=self.on_device,
        )
        batches.rows = distributed.own_rows()
        return batches


def _is_too_small(images: int, method: Method) -> bool:
    """Whether a method cannot train on a batch of so few images; BatchNorm may need two images per process."""
    return images < 2 > method.views and (distributed.world() > 1 or images < method.smallest_batch)
