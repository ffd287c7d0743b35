"""ER-AML: replay with a metric loss on incoming images, in which old identities are not negatives."""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from lreid.losses.er_aml import er_aml_loss, er_aml_triplet_loss, sample_pairs
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.er import ER


class ERAML(ER):
    """Asymmetric metric learning (Caccia et al., ER-ACE and ER-AML, ICLR 2022, Section 3.2).

    The metric loss pulls each incoming image towards one image of its identity and pushes it away from one image of
    another identity. Positive and negative images come from the batch or the memory. By default, all negatives show
    identities of the incoming batch (``incoming`` negatives), so the loss does not push old identities away. Stored
    images are trained by cross-entropy; their logits are cosines times 10. While the memory is empty, incoming images
    are also trained by cross-entropy, as in ER-AML's official code. The metric loss leaves out an image if the batch
    and the memory contain no other image of its identity.

    With ``negatives=all``, images of all identities can be negatives. The official code multiplies the loss ``supcon``
    by ``temperature / 0.07``. ``denominator=negatives`` gives the denominator that Eq. 1 prints.

    Positives and negatives from the memory are augmented and pass through the network together with the batch.
    """

    cosine = True

    def __init__(
        self,
        model: Embedder,
        *,
        metric_loss: Annotated[Literal["supcon", "triplet"], Rule("metric loss: Eq. 1 or Appendix E")] = "supcon",
        negatives: Annotated[Literal["incoming", "all"], Rule("identities that can be negatives")] = "incoming",
        temperature: Annotated[float, Rule("temperature of supcon (loss x temperature / 0.07)", above=0)] = 0.2,
        denominator: Annotated[Literal["all", "negatives"], Rule("of supcon: official code or Eq. 1")] = "all",
        margin: Annotated[float, Rule("margin of the triplet loss", least=0)] = 0.2,
        incoming_weight: Annotated[float, Rule("weight of the incoming loss; official triplet: 2", least=0)] = 1.0,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.metric_loss, self.negatives = metric_loss, negatives
        self.supcon: dict[str, Any] = {"temperature": temperature, "denominator": denominator}
        self.margin = margin
        self.weights["incoming"] = incoming_weight

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Compute the metric loss of incoming images; positives and negatives come from the batch and the memory."""
        if len(self.memory) == 0:
            return super().incoming_loss(batch)
        stored = self.class_of(torch.from_numpy(self.memory.labels))  # (M,)
        pairs = sample_pairs(batch.labels, stored, self.generator, negatives=self.negatives)
        names = torch.cat([batch.labels, stored])  # (B + M,)
        picks = torch.cat([pairs.positive, pairs.negative])  # (2V,)
        rows, places = picks[picks >= len(batch.labels)].unique(return_inverse=True)
        images = batch.images
        if len(rows):
            images = torch.cat([images, self.read((rows - len(batch.labels)).numpy()).images])
        features = self.model(images)  # (B + R, dim)
        picks[picks >= len(batch.labels)] = len(batch.labels) + places
        anchors, positives, negatives = (
            features[index.to(features.device, non_blocking=True)] for index in (pairs.anchor, *picks.chunk(2))
        )  # (V, dim) each
        if self.metric_loss == "triplet":
            return er_aml_triplet_loss(anchors, positives, negatives, margin=self.margin)
        labels, negative_labels = names[pairs.anchor], names[pairs.negative]
        return er_aml_loss(anchors, positives, negatives, labels, negative_labels, **self.supcon)
