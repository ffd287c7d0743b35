"""DMML-IRD: DMML with distillation of the relations between images of an episode, between Co²L and DwoPP."""

from __future__ import annotations

from typing import Annotated, Any

import torch.nn.functional as F
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.losses.relations import relation_distillation_loss
from lreid.methods.dwpp import DwPP
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class DMMLIRD(DwPP):
    """Instance-wise relation distillation (Co²L, Cha et al., ICCV 2021, Equations 11 to 13) on the DMML loss.

    DwPP and DwoPP (BMVC 2022) keep how a query relates to the prototypes of an episode. This keeps how every image,
    support or query, relates to every other one, by the cosine of their features. No paper has it. There is no
    projection head, so the distillation is what Co²L's Table 6 calls SEED.
    """

    unused = ("prob_floor",)

    def __init__(
        self,
        model: Embedder,
        *,
        temperature: Annotated[
            float, Rule("kappa, temperature of the relations of the model in training", above=0)
        ] = 0.2,
        teacher_temperature: Annotated[
            float, Rule("kappa*, temperature of the relations of the previous model", above=0)
        ] = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **options)
        self.relation_options = {"temperature": temperature, "teacher_temperature": teacher_temperature}

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """The distillation of the previous network's relations within the batch."""
        return relation_distillation_loss(F.normalize(student), F.normalize(teacher), **self.relation_options)
