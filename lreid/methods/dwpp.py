"""DwPP: DMML with the previous model distilled over all pairs of an episode, positive ones included."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.losses import dwpp_loss
from lreid.methods.dmml_ft import DMMLFineTuning
from lreid.models import Embedder, frozen_copy, restored_teacher, teacher_state


class DwPP(DMMLFineTuning):
    """Distillation with positive pairs (DwoPP, BMVC 2022, Equations 5 and 6), without exemplars.

    From the second task on the previous model, frozen and in evaluation mode, looks at the same augmented
    images as the new one.

    Args:
        model: the network.
        distillation_weight: lambda of Equation 9.
        temperature: of both distributions.
        prob_floor: smallest probability that still gets a gradient.
        dmml: options of :class:`DMMLFineTuning`.
    """

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
        if temperature <= 0 or not 0 <= prob_floor < 1:
            raise InputError("METHOD.TEMPERATURE must be above 0 and METHOD.PROB_FLOOR in [0, 1)")
        self.weights = {"distill": distillation_weight}
        self.distillation_options: dict[str, Any] = {
            "temperature": temperature,
            "prob_floor": prob_floor,
            "metric": self.metric,
        }
        self.teacher: Embedder | None = None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
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

    def end_task(self, task: Task) -> None:
        self.teacher = frozen_copy(self.model)

    def state_dict(self) -> dict[str, Any]:
        return {"teacher": teacher_state(self.teacher)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.teacher = restored_teacher(self.model, state["teacher"])
