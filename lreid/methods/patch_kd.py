"""PatchKD: LwF, and distillation of the logits and distances of selected patches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.patch_kd import (
    patchkd_conf_loss,
    patchkd_div_loss,
    patchkd_kd_loss,
    patchkd_patch_features,
    patchkd_rd_loss,
)
from lreid.methods.lwf import LwF
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.models.parts import bn_neck, evaluating
from lreid.models.patch_net import PatchNet
from lreid.rules import Rule


class PatchKD(LwF):
    """Patch-based knowledge distillation (Sun and Mu, ACM MM 2022).

    From the second task on a small network, :class:`~lreid.models.PatchNet`, chooses one position of the feature map
    for each of ``patches``, and the features there, of the network and of the previous one, are the patches of an
    image. To LwF's terms are added

    * ``patch_distill``: logits of patches, by a neck and a classifier of their own, against those that the previous
      network's classifier gives to its own patches;
    * ``relations``: distances of the patches of an image, and of the same patch across images;
    * ``confidence``: the entropy of the previous network's logits of patches;
    * ``diversity``: the mean cosine of the network's patches of an image, after their neck in evaluation mode.

    The last two train the sampler of positions, diversity the network as well; the others take positions as they are.

    The official code has one schedule for the whole sequence of tasks, so that all but the first run at a hundredth of
    the rate, and the sampler's begins with the second task; ``configs/recipes/patch_kd.yaml``
    has both.
    Differences: one neck for all tasks in place of one for each; the previous network's neck is in evaluation mode; the
    smoothed share of a label is spread over the classes of the task, not over 2,500; the stem keeps its ReLU.

    Args:
        model: the network, with a neck and feature maps.
    """

    keeps: ClassVar = {**LwF.keeps, "sampler": "network", "patch_neck": "network", "patch_classifier": "identity"}

    def __init__(
        self,
        model: Embedder,
        *,
        patches: Annotated[int, Rule("patches of an image", least=2)] = 3,
        patch_weight: Annotated[float, Rule("weight of the terms above", least=0)] = 0.1,
        relation_weight: Annotated[float, Rule("weight of the terms above", least=0)] = 100.0,
        confidence_weight: Annotated[float, Rule("weight of the terms above", least=0)] = 1.0,
        diversity_weight: Annotated[float, Rule("weight of the terms above", least=0)] = 0.5,
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
        model.map_size()  # which refuses a network that gives vectors
        device = model.mean.device
        # Drawn by a generator of its own, so that the classifier draws the same rows as without patches.
        self.generator = torch.Generator().manual_seed(torch.initial_seed())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            self.sampler = PatchNet(model.dim, patches).to(device)
        self.patch_neck = bn_neck(model.dim).to(device)
        self.patch_classifier = GrowingClassifier(model.dim).to(device)

    def begin_task(self, task: Task) -> None:
        """Adds a row of both classifiers for each new identity."""
        super().begin_task(task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            self.patch_classifier.grow(len(task.classes))

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """The network, both classifiers, and the sampler at its own rate, from the second task on."""
        parts: tuple[nn.Module, ...] = (self.model, self.classifier, self.patch_neck, self.patch_classifier)
        groups: list[dict[str, Any]] = [{"params": [each for part in parts for each in part.parameters()]}]
        own: dict[str, Any] = {"rate_factor": self.sampler_rate, "first_task": 1}
        return [*groups, {"params": list(self.sampler.parameters()), **own}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of LwF and those of patches."""
        maps = self.model.maps(batch.images)  # (B, dim, h, w)
        features = self.model.pool(maps)  # (B, dim)
        logits = self.classifier(self.model.neck(features))  # (B, all classes)
        terms = self.softmax_triplet(features, logits, batch)
        if self.teacher is None:
            return terms
        with torch.no_grad():
            old_maps = self.teacher.maps(batch.images)
            old_logits = self.old_classifier(self.teacher.neck(self.teacher.pool(old_maps)))  # (B, old classes)
        terms["distill"] = patchkd_kd_loss(logits, old_logits, temperature=self.temperature)
        return terms | self.patch_terms(maps, old_maps)

    def patch_terms(self, maps: Tensor, old_maps: Tensor) -> dict[str, Tensor]:
        """The terms of patches, of the maps (B, dim, h, w) of both networks."""
        assert self.teacher is not None
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

    def state_dict(self) -> dict[str, Any]:
        """Sampler, neck and classifier of patches and generator, in addition to the state of the base classes."""
        return super().state_dict() | {
            "sampler": self.sampler.state_dict(),
            "patch_neck": self.patch_neck.state_dict(),
            "patch_classifier": self.patch_classifier.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        for name in ("sampler", "patch_neck", "patch_classifier"):
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"].cpu())
