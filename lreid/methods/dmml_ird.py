"""DMML-IRD: DMML with Co²L's distillation of the similarities between all images of an episode."""

from typing import Annotated, Any

import torch.nn.functional as F
from torch import Tensor

from lreid.losses.relations import relation_distillation_loss
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.dwpp import DwPP


class DMMLIRD(DwPP):
    """DMML loss with the relation distillation of Co²L (IRD; Cha et al., ICCV 2021, Equations 11 to 13).

    DwPP and DwoPP (BMVC 2022) distil the similarities of a query to the prototypes of an episode. DMML-IRD distils the
    cosine similarities between all images of an episode, both supports and queries. No paper describes DMML-IRD; it is
    lreid's own combination. DMML has no projection head, so the distillation uses features, like "SEED" in Co²L's Table
    6.
    """

    unused = ("prob_floor",)

    def __init__(
        self,
        model: Embedder,
        *,
        temperature: Annotated[float, Rule("kappa in Co²L, for cosines of the new model", above=0)] = 0.2,
        teacher_temperature: Annotated[float, Rule("kappa* in Co²L, for the previous model", above=0)] = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **options)
        self.relation_options = {"temperature": temperature, "teacher_temperature": teacher_temperature}

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Compute the distillation of the previous network's similarities between the images of the batch."""
        return relation_distillation_loss(F.normalize(student), F.normalize(teacher), **self.relation_options)
