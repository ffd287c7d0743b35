"""PASS: rotated images as separate classes, prototypes of past identities with noise, and feature distillation.

The file and the method are not named ``pass``, because ``pass`` is a Python keyword.
"""

from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.losses._ops import class_means
from lreid.losses.pass_ import ROTATIONS, augment_prototypes, feature_distillation_loss, prototype_radius, rotate_batch
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.bot_ft import BoTFineTuning
from lreid.utils.devices import to_device


class PASS(BoTFineTuning):
    """Prototype augmentation and self-supervision (Zhu et al., CVPR 2021).

    The loss is ``L + 10 CE(m + r e, 4y) + w |F - F'|``, with these symbols:

    * ``L`` is BoT's softmax-triplet loss. The batch contains each image four times, rotated by 0, 90, 180 and 270
      degrees. Rotation ``k`` of identity ``y`` is a separate class ``4y + k``.
    * ``m`` is the prototype of a past identity: the mean feature of its unrotated images in evaluation mode. Prototypes
      are computed once, after the task of the identity. For each image of the batch, lreid draws one prototype. The
      vector ``e`` is normal noise. The scale ``r`` of the noise is the square root of the variance within identities,
      averaged over identities and feature dimensions; it is measured after the first task.
    * ``F`` and ``F'`` are the features that the new and the previous model compute for all rotated images. The norm
      ``|F - F'|`` is over the entire batch, neither squared nor averaged; ``w`` is its weight.

    DwoPP's authors (BMVC 2022) did not publish how they adapted PASS to re-ID. The following choices are lreid's:

    * After rotations by 90 and 270 degrees, images that are not square are resized to the input size of the network.
      The triplet loss treats each rotation as a separate identity.
    * Prototypes are mean features after the BatchNorm neck, because the classifier follows the neck. ``F`` and ``F'``
      are features before the neck. After the neck, new features have mean 0 in every batch and old features do not, so
      they could never be equal.
    * Logits are not divided by the temperature 0.1 of PASS's paper, because a linear classifier can learn larger
      weights instead.
    * The weight ``w`` is 0.03 instead of 10 as in PASS's paper. The gradient of the distillation term with respect to
      the features has length ``w``, however small the term is. The gradient of the triplet loss has a length of about
      ``sqrt(2 / B)`` for batches of B images. With ``w = 10``, the distillation dominates and the model learns little.
    * As in PASS, the softmax covers all identities so far. New images are therefore pushed away from the classifier
      rows of past identities; the prototypes keep the old rows in place. With ``prototype_weight=0``, nothing preserves
      the old classifier rows, so the softmax covers only the identities of the task, as in BoT-FT.

    A training step uses four times as many images as a step of BoT-FT.
    """

    saves: ClassVar = {"prototypes": "template", "prototype_classes": "", "radius": "", "generator": ""}
    keeps_teacher = True
    smallest_batch = 1  # the four rotations of an image make a batch

    def __init__(
        self,
        model: Embedder,
        *,
        prototype_weight: Annotated[float, Rule("weight of the cross-entropy on prototypes", least=0)] = 10.0,
        distillation_weight: Annotated[float, Rule("weight w of the feature distillation", least=0)] = 0.03,
        rotate: Annotated[bool, Rule("rotate images; with False and both weights 0, the method equals BoT-FT")] = True,
        **bot: Any,
    ) -> None:
        super().__init__(model, **bot)
        self.weights = {"prototypes": prototype_weight, "distill": distillation_weight}
        self.rotations = ROTATIONS if rotate else 1  # classifier rows per identity
        self.prototypes = torch.empty(0, model.dim, device=model.mean.device)  # (P, dim)
        self.prototype_classes = torch.empty(0, dtype=torch.int64)  # (P,) on the CPU
        self.radius = 0.0

    def begin_task(self, task: Task) -> None:
        """Add a classifier row for each rotation of each new identity."""
        self.first_class = 0 if self.memory or self.weights["prototypes"] else self.rotations * min(task.classes)
        self.classifier.cover([self.rotations * (max(task.classes) + 1) - 1])

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute BoT's loss terms on rotated images; from the second task on, add the terms against forgetting."""
        count = len(batch.labels)
        if self.rotations > 1:
            images, labels = rotate_batch(batch.images, batch.labels)  # (4B, 3, H, W), (4B,)
            batch = batch._replace(images=images, labels=labels)
        features = self.model(batch.images)  # (4B, dim)
        terms = self.softmax_triplet(features, self.classifier(self.model.neck(features)), batch)
        if self.teacher is not None:
            old = self.teacher(batch.images)  # (4B, dim)
            terms["prototypes"] = self.prototype_loss(count)
            terms["distill"] = feature_distillation_loss(features, old)
        return terms

    def prototype_loss(self, count: int) -> Tensor:
        """Draw ``count`` prototypes, add noise, and compute their cross-entropy in the classifier."""
        picks = torch.randint(len(self.prototypes), (count,), generator=self.generator)  # (n,)
        noise = torch.randn(count, self.prototypes.shape[1], generator=self.generator)  # (n, dim)
        noise = to_device(noise, self.prototypes.device).to(self.prototypes.dtype)
        past, rows = augment_prototypes(self.prototypes, self.prototype_classes, self.radius, picks, noise)
        rows //= ROTATIONS // self.rotations  # rows are 4y even if images are not rotated
        return F.cross_entropy(self.classifier(past), rows.to(past.device, non_blocking=True))

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute logits of all identities so far, without the classes of rotated images."""
        return super().class_scores(features)[:, :: self.rotations]  # upright images

    def end_task(self, task: Task) -> None:
        """Store the teacher, the mean feature of each identity and, after the first task, the scale of the noise."""
        features = torch.from_numpy(self.model.extract([record.path for record in task.records]))  # (n, dim)
        labels = torch.tensor([record.pid for record in task.records])  # (n,)
        if self.teacher is None:
            self.radius = prototype_radius(features, labels)
        means, classes = class_means(features, labels)
        self.prototypes = torch.cat([self.prototypes, means.to(self.prototypes)])
        self.prototype_classes = torch.cat([self.prototype_classes, classes])
        super().end_task(task)
