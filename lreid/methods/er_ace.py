"""ER-ACE: replay in which the loss of incoming images covers only the identities in the batch."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from lreid.losses.er_ace import asymmetric_cross_entropy
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.er import ER


class ERACE(ER):
    """Asymmetric cross-entropy (Caccia et al., ER-ACE and ER-AML, ICLR 2022, Section 3.4).

    For incoming images, the cross-entropy covers only the identities in the batch, so new images do not push away the
    features of old identities. The model learns to distinguish old from new identities by the usual cross-entropy on
    stored images. Logits are cosines between features and classifier rows, times 10.
    """

    saves: ClassVar = {"highest": ""}
    cosine = True

    def __init__(
        self,
        model: Embedder,
        *,
        official_denominator: Annotated[bool, Rule("use the official denominator (asymmetric_cross_entropy)")] = False,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.official_denominator = official_denominator
        self.highest = -1  # highest class seen so far

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Compute the cross-entropy over the identities in the batch."""
        seen = torch.tensor([self.highest]) if self.official_denominator else None
        return asymmetric_cross_entropy(self.logits(batch.images), batch.labels, seen)

    def end_step(self, batch: Batch) -> None:
        """Offer images to the memory, and record the largest class index so far for ``official_denominator``."""
        super().end_step(batch)
        self.highest = max(self.highest, int(self.class_of(batch.labels).max()))
