"""Decoupled distillation added to DMML: separate weights for positive and negative pairs."""

from typing import Annotated, Any

from torch import Tensor

from lreid.losses.distillation import decoupled_distillation_loss
from lreid.losses.episodes import prototype_logits, split_episode
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.dwpp import DwPP


class Decoupled(DwPP):
    """DwoPP's ablation (BMVC 2022, Table 3): ``alpha`` weights positive pairs, and ``beta`` weights negative pairs.

    With ``alpha = 0`` and ``beta = 1``, the loss equals DwoPP's loss without a minimum for probabilities. With ``beta =
    -1``, the negative pairs of a query have the weight ``1 - rho``, where ``rho`` is the teacher's probability of the
    query's own prototype. With ``alpha = 1`` and ``beta = -1``, the loss equals DwPP's loss without a minimum for
    probabilities.
    """

    unused = ("prob_floor",)

    def __init__(
        self,
        model: Embedder,
        *,
        alpha: Annotated[float, Rule("weight of positive pairs in the distillation")] = 0.5,
        beta: Annotated[float, Rule("weight of negative pairs; -1 = 1 - the teacher's own probability")] = 0.5,
        temperature: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **options)
        self.alpha, self.beta, self.temperature = alpha, beta, temperature

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Compute the decoupled distillation of the similarities between queries and prototypes."""
        episode = split_episode(batch.labels, batch.num_support, student.device)
        new, old = (prototype_logits(features, episode, self.metric) for features in (student, teacher))
        beta: float | Tensor = self.beta
        if beta < 0:
            own = (old / self.temperature).softmax(1).gather(1, episode.target[:, None])  # (Q, 1)
            beta = 1 - own[:, 0]
        return decoupled_distillation_loss(
            new, old, episode.target, alpha=self.alpha, beta=beta, temperature=self.temperature
        )
