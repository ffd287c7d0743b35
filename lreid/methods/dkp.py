"""DKP: model an image's features, and the stored prototypes of previous identities, as normal distributions."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses.dkp import dkp_pkt_loss, dkp_prototypes, dkp_set_triplet_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.fused_ft import FusedFineTuning
from lreid.models.classifier import ClassifyingEmbedder
from lreid.models.deviations import DistributionEmbedder
from lreid.models.embedder import frozen_copy
from lreid.utils.devices import to_device

EXTRACTED = 128  # images per forward pass


class DKP(FusedFineTuning):
    """Distribution-aware knowledge prototyping (Xu et al., CVPR 2024), in the form of its official code.

    The feature of an image is a normal distribution with a mean and standard deviations. The mean is the direction of
    the pooled features, and a separate head computes the standard deviations. The neck and the classifier process the
    mean and samples of the distribution, each scaled to unit length. The loss is the cross-entropy over means and
    samples plus :func:`~lreid.losses.dkp.dkp_set_triplet_loss`. After a task, the distributions of all images of an
    identity are merged into one, the prototype of the identity. In the next task,
    :func:`~lreid.losses.dkp.dkp_pkt_loss` compares the images of the batch by their cosines to samples of these
    prototypes; this loss needs no previous network. As in DKP's official code, only prototypes of the last task are
    stored. A prototype consists of two float32 vectors and is a biometric template of a person. After a task, the
    weights of the new and the old network are averaged with equal shares.

    DKP's official code computes prototypes in training mode, at the start of the next task. lreid computes them in
    evaluation mode at the end of the task, because the images of the task are not available later. DKP's official
    ResNet-50 has no last stage, like ``MODEL.BACKBONE resnet50_layer3``. The official network ends in a linear layer to
    2048 dimensions, which lreid leaves out.
    """

    saves: ClassVar = {"network.deviations": "network", "prototypes": "template", "generator": ""}
    network: DistributionEmbedder
    unused = ("margin", "soft_margin", "normalize_triplet")

    def __init__(
        self,
        model: Embedder,
        *,
        samples: Annotated[int, Rule("number of samples from every image's distribution", least=1)] = 6,
        triplet_weight: Annotated[float, Rule("weight of the set triplet loss in the total loss", least=0)] = 1.5,
        transfer_weight: Annotated[float, Rule("weight of the transfer from prototypes; 0 stores none", least=0)] = 0.1,
        relation_temperature: Annotated[float, Rule("temperature of image-prototype cosines", above=0)] = 0.1,
        temperature: Annotated[float, Rule("temperature of the cosines within the batch", above=0)] = 0.1,
        **base: Any,
    ) -> None:
        super().__init__(model, **base)
        self.weights = {"triplet": triplet_weight, "transfer": transfer_weight}
        self.samples = samples
        self.temperatures: dict[str, Any] = {"relation_temperature": relation_temperature, "temperature": temperature}
        self.network = DistributionEmbedder(model, self.classifier)
        self.prototypes: dict[str, Tensor] | None = None  # means and deviations (P, dim), last task only

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute :meth:`distribution_terms` and, from the second task on, :meth:`retention_terms`."""
        features = self.drawn(batch.images)  # (B, 1 + S, dim)
        terms = self.distribution_terms(features, batch)
        return terms if self.teacher is None else terms | self.retention_terms(features, batch)

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the distillation from prototypes; ``features`` (B, 1 + S, dim) are a mean and S samples per image."""
        if self.prototypes is None:
            return {}
        means, deviations = self.prototypes["means"], self.prototypes["deviations"]
        noise = self._noise(means.shape, means)
        return {"transfer": dkp_pkt_loss(features[:, 0], means, deviations, noise, **self.temperatures)}

    def distribution_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute cross-entropy and set triplet loss of features (B, 1 + S, dim), a mean and S samples per image."""
        labels = batch.labels.to(features.device, non_blocking=True)
        logits = self.network.logits(features.flatten(0, 1))  # (B * (1 + S), classes)
        repeated = labels.repeat_interleave(features.shape[1])
        return {
            "softmax": F.cross_entropy(logits, repeated, label_smoothing=self.label_smoothing),
            "triplet": dkp_set_triplet_loss(features, labels),
        }

    def drawn(self, images: Tensor) -> Tensor:
        """Compute one mean and S samples (B, 1 + S, dim), of unit length, per normalised image (B, 3, H, W)."""
        means, deviations = self.network.distributions(images)  # (B, dim)
        noise = self._noise((len(means), self.samples, means.shape[1]), means)
        samples = F.normalize(means[:, None] + deviations[:, None] * noise, dim=2)
        return torch.cat([means[:, None], samples], 1)

    def _noise(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        return to_device(torch.randn(shape, generator=self.generator), like.device).to(like.dtype)

    def extract(self, network: ClassifyingEmbedder, task: Task) -> Tensor:
        """Extract features like the base class, and scale them to unit length."""
        return F.normalize(super().extract(network, task), dim=1)

    def end_task(self, task: Task) -> None:
        """Store a prototype of each identity."""
        super().end_task(task)
        if self.weights["transfer"]:
            paths = [record.path for record in task.records]
            network = frozen_copy(self.network)
            network.model.precision = None
            chunks = [paths[start : start + EXTRACTED] for start in range(0, len(paths), EXTRACTED)]
            with torch.no_grad():
                parts = [network.distributions(self.model.ready(chunk)) for chunk in chunks]
            means, deviations = map(torch.cat, zip(*parts, strict=True))  # (n, dim)
            labels = torch.tensor([record.pid for record in task.records])
            centers, spreads, _ = dkp_prototypes(means, deviations, labels)
            self.prototypes = {"means": centers, "deviations": spreads}
