"""DwPP: DMML with distillation from the previous model, over all pairs of an episode."""

from typing import Annotated, Any

from torch import Tensor

from lreid.losses.distillation import dwpp_loss
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.dmml_ft import DMMLFineTuning


class DwPP(DMMLFineTuning):
    """Distillation with positive pairs (DwPP), a baseline in DwoPP's paper (BMVC 2022, Equations 5 and 6).

    From the second task on, the previous model is the teacher; it is frozen and in evaluation mode.
    """

    keeps_teacher = True

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the distillation, lambda in Eq. 9", least=0)] = 1.0,
        temperature: Annotated[float, Rule("temperature of teacher and student", above=0)] = 10.0,
        prob_floor: Annotated[float, Rule("minimum probability; lower ones get no gradient", least=0, below=1)] = 1e-4,
        **dmml: Any,
    ) -> None:
        super().__init__(model, **dmml)
        self.weights = {"distill": distillation_weight}
        self.distillation_options: dict[str, Any] = {
            "temperature": temperature,
            "prob_floor": prob_floor,
            "metric": self.metric,
        }

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the DMML loss of the episode and, from the second task on, the distillation."""
        student = self.model(batch.images)  # (B, dim)
        terms = self.episode_loss(student, batch)
        if self.teacher is not None:
            teacher = self.teacher(batch.images)  # (B, dim)
            terms["distill"] = self.distillation(student, teacher, batch)
        return terms

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Compute the distillation term from features (B, dim) of both models."""
        return dwpp_loss(student, teacher, batch.labels, batch.num_support, **self.distillation_options)
