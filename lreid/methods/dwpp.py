"""DwPP: DMML with the previous model distilled over all pairs of an episode, positive ones included."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.errors import require
from lreid.losses.distillation import dwpp_loss
from lreid.methods.dmml_ft import DMMLFineTuning
from lreid.models.embedder import Embedder


class DwPP(DMMLFineTuning):
    """Distillation with positive pairs (DwoPP, BMVC 2022, Equations 5 and 6).

    From the second task on the previous model, frozen and in evaluation mode, looks at the same augmented
    images as the new one.

    Args:
        model: the network.
        distillation_weight: lambda of Equation 9.
        temperature: of both distributions.
        prob_floor: smallest probability that still gets a gradient.
        dmml: options of :class:`DMMLFineTuning`.
    """

    keeps_teacher = True

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: float = 1.0,
        temperature: float = 10.0,
        prob_floor: float = 1e-4,
        **dmml: Any,
    ) -> None:
        super().__init__(model, **dmml)
        require(0 <= prob_floor < 1, "prob_floor", prob_floor, "in [0, 1)")
        self.weights = {"distill": distillation_weight}
        self.distillation_options: dict[str, Any] = {
            "temperature": temperature,
            "prob_floor": prob_floor,
            "metric": self.metric,
        }

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """DMML on the episode, and distillation once there is a previous network."""
        student = self.model(batch.images)  # (B, dim)
        terms = self.episode_loss(student, batch)
        if self.teacher is not None:
            with torch.no_grad():
                teacher = self.teacher(batch.images)  # (B, dim)
            terms["distill"] = self.distillation(student, teacher, batch)
        return terms

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """The distillation term of features (B, dim) of both models."""
        return dwpp_loss(student, teacher, batch.labels, batch.num_support, **self.distillation_options)
