"""DKP: features are distributions, and each identity of the previous task is stored as one distribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.devices import to_device
from lreid.losses.dkp import dkp_pkt_loss, dkp_prototypes, dkp_set_triplet_loss
from lreid.methods.fused_ft import FusedFineTuning
from lreid.models.classifier import ClassifyingEmbedder
from lreid.models.deviations import DistributionEmbedder
from lreid.models.embedder import Embedder, frozen_copy
from lreid.rules import Rule

EXTRACTED = 128  # images at a time


class DKP(FusedFineTuning):
    """Distribution-aware knowledge prototyping (Xu et al., CVPR 2024), in the form of its official code.

    The feature of an image is a normal distribution: its mean is the direction of the pooled features, and a head of
    its own gives the standard deviations. Some samples of it, each scaled to unit length, go through neck and
    classifier as the mean does. The loss is ``softmax + set triplet``, the cross-entropy over means and samples, and
    :func:`~lreid.losses.dkp.dkp_set_triplet_loss` with samples as anchors. After a task the distributions of an
    identity's images become one, its prototype; in the next task :func:`~lreid.losses.dkp.dkp_pkt_loss` keeps
    relations within the batch as samples of these prototypes see them. No previous network is asked. Prototypes are
    those of the last task alone, as in the official code, two float32 vectors for each identity: they are biometric
    templates of people. Half of the new network goes into the average.

    The official code takes the prototypes at the start of the next task in training mode, from images that are no
    longer there here: they are taken at the end, in evaluation mode. Its ResNet-50 ends before the last stage
    (``MODEL.BACKBONE resnet50_layer3``); a linear layer from there to 2048 dimensions is left out here.
    """

    keeps: ClassVar = {**FusedFineTuning.keeps, "deviations": "network", "prototypes": "template"}
    network: DistributionEmbedder
    unused = ("margin", "soft_margin", "normalize_triplet")

    def __init__(
        self,
        model: Embedder,
        *,
        samples: Annotated[int, Rule("samples of every image's distribution", least=1)] = 6,
        triplet_weight: Annotated[float, Rule("weight of the set triplet loss", least=0)] = 1.5,
        transfer_weight: Annotated[
            float, Rule("weight of the relations to prototypes; at 0 none are kept", least=0)
        ] = 0.1,
        relation_temperature: Annotated[
            float, Rule("temperature of the relations to prototypes and within the batch", above=0)
        ] = 0.1,
        temperature: Annotated[
            float, Rule("temperature of the relations to prototypes and within the batch", above=0)
        ] = 0.1,
        **base: Any,
    ) -> None:
        super().__init__(model, **base)
        self.weights = {"triplet": triplet_weight, "transfer": transfer_weight}
        self.samples = samples
        self.temperatures: dict[str, Any] = {"relation_temperature": relation_temperature, "temperature": temperature}
        self.network = DistributionEmbedder(model, self.classifier)
        self.prototypes: dict[str, Tensor] | None = None  # mean and deviation (P, dim), those of the last task
        # A separate generator, so that classifier rows are drawn as without samples.
        self.generator = torch.Generator().manual_seed(torch.initial_seed())

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of DKP, and those of :meth:`kept` from the second task on."""
        features = self.drawn(batch.images)  # (B, 1 + S, dim)
        terms = self.distribution_terms(features, batch)
        return terms if self.teacher is None else terms | self.retention_terms(features, batch)

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The relations to prototypes, of means and samples (B, 1 + S, dim)."""
        if self.prototypes is None:
            return {}
        means, deviations = self.prototypes["means"], self.prototypes["deviations"]
        noise = self._noise(means.shape, means)
        return {"transfer": dkp_pkt_loss(features[:, 0], means, deviations, noise, **self.temperatures)}

    def distribution_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy and set triplet loss of means and samples (B, 1 + S, dim)."""
        labels = batch.labels.to(features.device, non_blocking=True)
        logits = self.network.logits(features.flatten(0, 1))  # (B * (1 + S), classes)
        repeated = labels.repeat_interleave(features.shape[1])
        return {
            "softmax": F.cross_entropy(logits, repeated, label_smoothing=self.label_smoothing),
            "triplet": dkp_set_triplet_loss(features, labels),
        }

    def drawn(self, images: Tensor) -> Tensor:
        """Means and samples (B, 1 + S, dim), all of unit length, of normalised images (B, 3, H, W)."""
        means, deviations = self.network.distributions(images)  # (B, dim)
        noise = self._noise((len(means), self.samples, means.shape[1]), means)
        samples = F.normalize(means[:, None] + deviations[:, None] * noise, dim=2)
        return torch.cat([means[:, None], samples], 1)

    def _noise(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        return to_device(torch.randn(shape, generator=self.generator), like.device).to(like.dtype)

    def extract(self, network: ClassifyingEmbedder, task: Task) -> Tensor:
        """As in the base class, with unit length."""
        return F.normalize(super().extract(network, task), dim=1)

    def end_task(self, task: Task) -> None:
        """Keeps a prototype of each identity."""
        super().end_task(task)
        if self.weights["transfer"]:
            means, deviations = map(torch.cat, zip(*self._all_distributions(task), strict=True))  # (n, dim)
            labels = torch.tensor([record.pid for record in task.records])
            centers, spreads, _ = dkp_prototypes(means, deviations, labels)
            self.prototypes = {"means": centers, "deviations": spreads}

    @torch.no_grad()
    def _all_distributions(self, task: Task) -> Iterator[tuple[Tensor, Tensor]]:
        """Means and deviations of all images of a task in turn."""
        paths = [record.path for record in task.records]
        network = frozen_copy(self.network)
        network.model.precision = None
        for start in range(0, len(paths), EXTRACTED):
            yield network.distributions(self.model.ready(paths[start : start + EXTRACTED]))

    def state_dict(self) -> dict[str, Any]:
        """The head of deviations, the prototypes and the generator, in addition to the state of the base classes."""
        return super().state_dict() | {
            "deviations": self.network.deviations.state_dict(),
            "prototypes": self.prototypes,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.network.deviations.load_state_dict(state["deviations"])
        self.prototypes = state["prototypes"]
        if self.prototypes is None and self.teacher is not None and self.weights["transfer"]:
            raise KeyError("prototypes")
        if self.prototypes is not None:
            self.prototypes = {name: each.to(self.model.mean.device) for name, each in self.prototypes.items()}
        self.generator.set_state(state["generator"].cpu())
