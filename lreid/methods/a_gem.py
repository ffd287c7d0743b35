"""A-GEM: the gradient of new images is kept from working against that of stored ones."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lreid.methods.er import ER
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class AGEM(ER):
    """Averaged gradient episodic memory (Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019, Eq. 11).

    Where the gradient g of the incoming batch and that of stored images r point against each other, g is projected:
    g - (g·r / r·r) r; otherwise stored images are not learned from. That is the gradient of the incoming loss plus
    -g·r / r·r times the loss of the stored images, which is how it is computed here. The memory is a reservoir, as of
    all baselines of ER-ACE's paper, and gives images of past tasks alone.
    """

    unused = ("replay_weight",)
    divisible = False

    def __init__(
        self,
        model: Embedder,
        *,
        task_free: Annotated[bool, Rule("compare with images of the current task too")] = False,
        **er: Any,
    ) -> None:
        super().__init__(model, task_free=task_free, **er)

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """The loss of stored images, times what turns the sum's gradient into the projected one: 0 or more."""
        terms = super().replay_terms(count, incoming)
        return {name: term * self.projection(incoming, term) for name, term in terms.items()}

    def projection(self, incoming: Tensor, stored: Tensor) -> Tensor:
        """``max(0, -g·r / r·r)``, a scalar without gradient, of two losses."""
        parameters = [part for part in self.parameters() if part.requires_grad]
        gradients = [
            torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
            for loss in (incoming, stored)
        ]
        new, old = (torch.cat([part.flatten().double() for part in each]) for each in gradients)
        return (-(new @ old) / (old @ old).clamp(min=1e-12)).clamp(min=0).to(stored.dtype)
