"""PatchKD: LwF that also distils the logits and distances of selected patches."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from lreid.losses.patch_kd import (
    patchkd_conf_loss,
    patchkd_div_loss,
    patchkd_kd_loss,
    patchkd_patch_features,
    patchkd_rd_loss,
)
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.lwf import LwF
from lreid.models.classifier import GrowingClassifier
from lreid.models.parts import bn_neck, evaluating
from lreid.models.patch_net import PatchNet


class PatchKD(LwF):
    """Patch-based knowledge distillation (Sun and Mu, ACM MM 2022).

    From the second task on, a small network, the sampler (:class:`~lreid.models.PatchNet`), chooses ``patches``
    positions in the feature map. A patch is the feature vector at a chosen position. The same positions are used in the
    feature maps of the current and the previous network. PatchKD adds four terms to LwF's loss:

    * ``patch_distill``: distillation of the previous classifier's logits for patches of the previous network. A
      separate neck and classifier compute the logits of the current network's patches.
    * ``relations``: distillation of the distances between the patches of an image, and of the distances between the
      images of the batch for each patch.
    * ``confidence``: the entropy of the previous classifier's softmax over old identities, for patches of the previous
      network.
    * ``diversity``: the mean cosine similarity between the patches of an image after the patch neck; the neck is in
      evaluation mode.

    The terms ``confidence`` and ``diversity`` train the sampler. The terms ``patch_distill``, ``relations`` and
    ``diversity`` train the network.

    PatchKD's official code has one learning rate schedule for the whole sequence of tasks. In the official code, all
    tasks after the first therefore train at a hundredth of the initial learning rate. The sampler has its own schedule,
    which begins with the second task. ``configs/recipes/patch_kd.yaml`` sets both schedules. lreid differs from
    PatchKD's official code in four points. First, all tasks share one BatchNorm neck. Second, the neck of the previous
    network is in evaluation mode. Third, label smoothing covers the classes of the task; the official code uses 2,500
    classes. Fourth, the stem of the ResNet has a ReLU.

    Args:
        model: the network; it must have a BatchNorm neck and feature maps.
    """

    saves: ClassVar = {"sampler": "network", "patch_neck": "network", "patch_classifier": "identity", "generator": ""}

    def __init__(
        self,
        model: Embedder,
        *,
        patches: Annotated[int, Rule("number of patches that are selected per image", least=2)] = 3,
        patch_weight: Annotated[float, Rule("weight of the loss term patch_distill", least=0)] = 0.1,
        relation_weight: Annotated[float, Rule("weight of the loss term relations", least=0)] = 100.0,
        confidence_weight: Annotated[float, Rule("weight of the loss term confidence", least=0)] = 1.0,
        diversity_weight: Annotated[float, Rule("weight of the loss term diversity", least=0)] = 0.5,
        sampler_rate: Annotated[float, Rule("factor of the learning rate of the sampler", least=0)] = 1.0,
        **lwf: Any,
    ) -> None:
        super().__init__(model, **lwf)
        self.weights |= {
            "patch_distill": patch_weight,
            "relations": relation_weight,
            "confidence": confidence_weight,
            "diversity": diversity_weight,
        }
        self.patches, self.sampler_rate = patches, sampler_rate
        model.map_size()  # raises an error for a network without feature maps
        device = model.mean.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            self.sampler = PatchNet(model.dim, patches).to(device)
        self.patch_neck = bn_neck(model.dim).to(device)
        self.patch_classifier = GrowingClassifier(model.dim).to(device)

    def begin_task(self, task: Task) -> None:
        """For each new identity, add a row to the image classifier and a row to the patch classifier."""
        super().begin_task(task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            self.patch_classifier.cover(task.classes)

    def parameters(self) -> list[dict[str, Any]]:
        """The network, both classifiers and, from the second task on, the sampler with its own learning rate."""
        parts: tuple[nn.Module, ...] = (self.model, self.classifier, self.patch_neck, self.patch_classifier)
        groups: list[dict[str, Any]] = [{"params": [each for part in parts for each in part.parameters()]}]
        own: dict[str, Any] = {"rate_factor": self.sampler_rate, "first_task": 1}
        return [*groups, {"params": list(self.sampler.parameters()), **own}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms of LwF and, from the second task on, those of patches."""
        maps = self.model.maps(batch.images)  # (B, dim, h, w)
        features = self.model.pool(maps)  # (B, dim)
        logits = self.classifier(self.model.neck(features))  # (B, all classes)
        terms = self.softmax_triplet(features, logits, batch)
        if self.teacher is None:
            return terms
        old_maps = self.teacher.maps(batch.images)
        old_logits = self.old_classifier(self.teacher.neck(self.teacher.pool(old_maps)))  # (B, old classes)
        terms["distill"] = patchkd_kd_loss(logits, old_logits, temperature=self.temperature)
        return terms | self.patch_terms(maps, old_maps)

    def patch_terms(self, maps: Tensor, old_maps: Tensor) -> dict[str, Tensor]:
        """Compute the loss terms of patches from the current and the previous feature maps (B, dim, h, w)."""
        theta = self.sampler(maps.detach(), self.generator)  # (B, k, h, w)
        old = patchkd_patch_features(old_maps, theta)  # (B, k, dim)
        new = patchkd_patch_features(maps, theta.detach())
        own = patchkd_patch_features(maps, theta).flatten(0, 1)  # (B * k, dim)
        old_logits = self.old_classifier(self.teacher.neck(old.flatten(0, 1)))  # (B * k, old classes)
        new_logits = self.patch_classifier(self.patch_neck(new.flatten(0, 1)))  # (B * k, all classes)
        target = old.detach()
        with evaluating(self.patch_neck):
            normalised = self.patch_neck(own)
        return {
            "patch_distill": patchkd_kd_loss(new_logits, old_logits, temperature=self.temperature),
            "relations": patchkd_rd_loss(new, target) + patchkd_rd_loss(new.transpose(0, 1), target.transpose(0, 1)),
            "confidence": patchkd_conf_loss(old_logits, temperature=self.temperature),
            "diversity": patchkd_div_loss(normalised, self.patches),
        }
