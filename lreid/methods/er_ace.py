"""ER-ACE: replay in which the loss of new images covers only new identities."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.losses.er_ace import asymmetric_cross_entropy
from lreid.methods.er import ER
from lreid.models.classifier import CosineClassifier, GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class ERACE(ER):
    """Asymmetric cross-entropy (Caccia et al., ER-ACE and ER-AML, ICLR 2022, Section 3.4).

    The cross-entropy of the incoming batch runs over the identities that are in it. So the features of old ones are
    not pushed away by images that the model does not know yet; old and new identities are distinguished on stored
    images, by plain cross-entropy. The classifier compares cosines, times 10.
    """

    def __init__(
        self,
        model: Embedder,
        *,
        official_denominator: Annotated[
            bool,
            Rule(
                "denominator of the incoming loss as in the official code, which keeps the classes from the "
                "highest one seen on, see asymmetric_cross_entropy"
            ),
        ] = False,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.official_denominator = official_denominator
        self.highest = -1  # identity that came in so far

    def new_classifier(self) -> GrowingClassifier:
        """A classifier that compares cosines."""
        return CosineClassifier(self.model.dim)

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Cross-entropy over the classes of the batch, so that new images do not push old classes away."""
        seen = torch.tensor([self.highest]) if self.official_denominator else None
        return asymmetric_cross_entropy(self.logits(batch.images), batch.labels, seen)

    def end_step(self, batch: Batch) -> None:
        """Stores images, and notes the highest class seen, for the official denominator."""
        super().end_step(batch)
        self.highest = max(self.highest, int(self.class_of(batch.labels).max()))

    def state_dict(self) -> dict[str, Any]:
        """The highest class seen, besides what ER keeps."""
        return super().state_dict() | {"highest": self.highest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.highest = state["highest"]
