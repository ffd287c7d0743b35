"""LSTKC: distil corrected affinities of the previous network; after a task, average new and old weights."""

from typing import Annotated, Any

from torch import Tensor

from lreid.losses.lstkc import lstkc_rskt_loss
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.fused_ft import FusedFineTuning


class LSTKC(FusedFineTuning):
    """Long short-term knowledge consolidation (Xu et al., AAAI 2024), in the form of its official code.

    The loss is ``softmax + triplet + distill``. The teacher is the previous network after weight averaging; in
    evaluation mode, it extracts features of the same augmented images. :func:`~lreid.losses.lstkc.lstkc_rskt_loss`
    corrects the teacher's wrong affinities within the batch and distils the result. After a task, the weights of the
    new and the previous network are averaged; :func:`~lreid.losses.fusion.lstkc_alpha` computes the weight of the new
    network.
    """

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the distillation in the total loss", least=0)] = 1.0,
        temperature: Annotated[float, Rule("temperature of the affinities", above=0)] = 0.1,
        detach_target: Annotated[bool, Rule("stop the gradient through the target; LSTKC's code does not")] = False,
        normalize_triplet: bool = True,
        measured_fusion: bool = True,
        **base: Any,
    ) -> None:
        super().__init__(model, normalize_triplet=normalize_triplet, measured_fusion=measured_fusion, **base)
        self.weights = {"distill": distillation_weight}
        self.temperature, self.detach_target = temperature, detach_target

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the distillation loss on the corrected affinities of the previous network."""
        old = self.teacher.model(batch.images)  # (B, dim)
        options: dict[str, Any] = {"temperature": self.temperature, "detach_target": self.detach_target}
        return {"distill": lstkc_rskt_loss(features, old, batch.labels, **options)}
