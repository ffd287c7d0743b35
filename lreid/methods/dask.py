"""DASK: train on the images of the task, and on the same images in the style of the previous domain."""

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Adam

from lreid.data.images import Images
from lreid.losses.affinity import affinity_kl_loss
from lreid.losses.dask import dask_color_resample, dask_decode
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.fused_ft import FusedFineTuning
from lreid.models.style import StyleKernels
from lreid.utils.devices import to_device

StyleSteps = Annotated[int, Rule("number of updates of the style network after a task; 20,000 in the paper", least=0)]
StyleBatch = Annotated[int, Rule("number of images per update of the style network; 128 in DASK's paper", least=2)]
StylePad = Annotated[int, Rule("black border in pixels before a random crop; 10 in the official code", least=0)]


class StyleRehearser:
    """Transfer images to the style of a past domain without storing images of that domain.

    To train a small style network, the colours of the past domain's images are changed at random
    (:func:`~lreid.losses.dask.dask_color_resample`). The style network learns to restore the original images. For each
    image, the style network outputs the weights of a 3 x 3 convolution, which changes the image
    (:func:`~lreid.losses.dask.dask_decode`). Applied to images of another domain, the trained style network gives them
    the colours of the past domain. As in DASK's official code, the style network is trained by Adam with a learning
    rate of 2e-4 and betas of 0 and 0.999. The loss of the style network is the mean absolute error of normalised pixel
    values. The BatchNorm layers of the style network always use the statistics of the batch. DASK's official code
    trains the style network before the run, on batches of P x K flipped and cropped images. DASK's official code stores
    one style network per domain but uses only the last one. lreid stores only the last style network, and trains it on
    random images without augmentation.

    Args:
        model: the re-ID network, which defines image size, normalisation and device.
        style_steps: number of updates of the style network after a task (20,000 in DASK's paper). With
            ``style_steps=0``, the style network keeps its random initial weights.
        style_batch: number of images per update of the style network (128 in DASK's paper).
        style_pad: width in pixels of the black border around an image before its random crop (10 in DASK's official
            code).
    """

    def __init__(self, model: Embedder, *, style_steps: int, style_batch: int, style_pad: int = 0) -> None:
        self.model, self.steps, self.batch, self.pad = model, style_steps, style_batch, style_pad
        self.kernels: StyleKernels | None = None  # None until the first task has ended
        # A separate generator keeps the run's other random numbers the same as without a rehearser.
        self.generator = torch.Generator().manual_seed(torch.initial_seed())

    def learn(self, task: Task) -> None:
        """Train a new style network on the images of a task."""
        images = Images(task.records, height=self.model.height, width=self.model.width, cache_gib=1.0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            kernels = StyleKernels()
        self.kernels = kernels.to(self.model.mean.device).train()
        optimizer = Adam(self.kernels.parameters(), lr=2e-4, betas=(0.0, 0.999))
        for _ in range(self.steps):
            rows = torch.randint(len(images), (self.batch,), generator=self.generator).tolist()
            pixels = torch.from_numpy(np.stack([images[row] for row in rows]))  # (n, H, W, 3) uint8
            values = self._values(pixels)
            target = (255 * values - self.model.mean) / self.model.std
            changed = dask_color_resample(values.cpu(), generator=self.generator).to(values.device)
            loss = F.l1_loss(dask_decode(changed, self.kernels(changed)), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def rehearse(self, pixels: Tensor) -> Tensor:
        """Transfer pixels (n, H, W, 3) uint8 to the learned style; return normalised images (n, 3, H, W).

        Half of the images are mirrored. Each image gets a border of ``style_pad`` pixels and is then cropped at random.
        No other augmentation is used.
        """
        values = self._values(pixels)
        flip = torch.rand(len(values), generator=self.generator) < 0.5
        values = torch.where(flip.to(values.device, non_blocking=True)[:, None, None, None], values.flip(-1), values)
        if self.pad:
            values = torch.stack([self._shifted(image) for image in F.pad(values, [self.pad] * 4)])
        return dask_decode(values, self.kernels(values))

    def _shifted(self, padded: Tensor) -> Tensor:
        """Cut a random crop (3, H, W) out of an image with a border."""
        top, left = torch.randint(2 * self.pad + 1, (2,), generator=self.generator).tolist()
        return padded[:, top : top + self.model.height, left : left + self.model.width]

    def _values(self, pixels: Tensor) -> Tensor:
        """Convert pixels to (n, 3, H, W) in [0, 1] on the model's device."""
        return to_device(pixels, self.model.mean.device).permute(0, 3, 1, 2).float() / 255

    def state_dict(self) -> dict[str, Any]:
        """Return the style network and its random number generator."""
        kernels = None if self.kernels is None else self.kernels.state_dict()
        return {"kernels": kernels, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.kernels = None
        if state["kernels"] is not None:
            with torch.random.fork_rng(devices=[]):
                self.kernels = StyleKernels().to(self.model.mean.device).train()
            self.kernels.load_state_dict(state["kernels"])
        self.generator.set_state(state["generator"].cpu())


class DASK(FusedFineTuning):
    """Distribution rehearsing via adaptive style kernels (DASK, AAAI 2025), in the form of its official code.

    After a task, a :class:`StyleRehearser` learns the style of the task's images. In addition to the previous network,
    DASK stores only one style network (4.4 MB), however many tasks there are. In the next task, each update also trains
    on a copy of the batch in the style of the previous domain (the rehearsed batch). The loss is ``L(batch) + rehearsal
    * L(rehearsed batch)`` with ``L = softmax + triplet + distill``. The term ``distill`` is
    :func:`~lreid.losses.affinity.affinity_kl_loss`; the teacher is the previous network after weight averaging. After a
    task, the weights of the new and the old network are averaged with equal shares.

    The triplet loss compares features without scaling to unit length, so set ``EVAL.METRIC`` to ``euclidean``.
    """

    saves: ClassVar = {"rehearser": "domain"}
    pixels = True
    divisible = False  # the random style needs the images of the entire batch

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of both distillations", least=0)] = 1.0,
        rehearsal_weight: Annotated[
            float, Rule("weight of all loss terms of rehearsed images; with 0, nothing is rehearsed", least=0)
        ] = 4.5,
        temperature: Annotated[float, Rule("temperature of the affinities", above=0)] = 0.1,
        style_steps: StyleSteps = 200,
        style_batch: StyleBatch = 32,
        style_pad: StylePad = 0,
        **base: Any,
    ) -> None:
        super().__init__(model, **base)
        self.weights = {"distill": distillation_weight} | {
            f"{name}_rehearsed": rehearsal_weight * weight
            for name, weight in (("softmax", 1.0), ("triplet", 1.0), ("distill", distillation_weight))
        }
        self.temperature, self.rehearsal_weight = temperature, rehearsal_weight
        self.rehearser = StyleRehearser(model, style_steps=style_steps, style_batch=style_batch, style_pad=style_pad)

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the distillation loss of the original images, and all loss terms of the rehearsed images."""
        terms = {"distill": self.distillation(features, batch.images)}
        if self.rehearsal_weight and self.rehearser.kernels is not None:
            images = self.rehearser.rehearse(batch.pixels)  # (B, 3, H, W)
            rehearsed, logits = self.network(images)
            of_rehearsed = self.softmax_triplet(rehearsed, logits, batch)
            of_rehearsed["distill"] = self.distillation(rehearsed, images)
            terms |= {f"{name}_rehearsed": term for name, term in of_rehearsed.items()}
        return terms

    def distillation(self, features: Tensor, images: Tensor) -> Tensor:
        """Compute the distillation of the previous network's affinities within a batch, for features (B, dim)."""
        old = self.teacher.model(images)  # (B, dim)
        return affinity_kl_loss(features, old, temperature=self.temperature)

    def end_task(self, task: Task) -> None:
        """Store the current network as the next teacher, and learn the style of the task."""
        super().end_task(task)
        if self.rehearsal_weight:
            self.rehearser.learn(task)
