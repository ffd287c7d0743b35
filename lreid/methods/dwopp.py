"""DwoPP: DMML with distillation from the previous model, over negative pairs only."""

from typing import Any

from torch import Tensor

from lreid.losses.distillation import dwopp_loss
from lreid.methods.base import Batch, Embedder
from lreid.methods.dwpp import DwPP


class DwoPP(DwPP):
    """Distillation without positive pairs (DwoPP, BMVC 2022, Equations 7 to 9).

    The metric loss pulls a query towards the prototype of its own identity. Distilling the old similarity to the
    prototype of the query's own identity would oppose the metric loss. DwoPP therefore distils only the similarities to
    the prototypes of other identities.
    """

    def __init__(self, model: Embedder, *, temperature: float = 1.0, **options: Any) -> None:
        super().__init__(model, temperature=temperature, **options)

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Compute :func:`~lreid.losses.dwopp_loss` of the episode."""
        return dwopp_loss(student, teacher, batch.labels, batch.num_support, **self.distillation_options)
