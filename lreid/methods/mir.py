"""MIR: replay the stored images whose loss would increase most after a step on the incoming batch."""

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from lreid.errors import require
from lreid.methods.base import Embedder, Rule
from lreid.methods.er import ER, Replay


class MIR(ER):
    """Maximally interfered retrieval (Aljundi et al., NeurIPS 2019), a baseline in ER-ACE's paper.

    MIR draws ``candidates`` stored images and makes a virtual gradient descent step on the loss of the incoming batch.
    MIR replays the candidates whose loss increases most in the virtual step. Neither MIR's paper nor its code says how
    BatchNorm works while the losses of candidates are compared. In lreid, BatchNorm uses the statistics of the
    candidates in this comparison, and its running statistics do not change. MIR's official code chooses 10 of 50
    candidates, and its virtual step has the training rate (SGD, 0.1).
    """

    divisible = False

    def __init__(
        self,
        model: Embedder,
        *,
        candidates: Annotated[int, Rule("stored images to choose from; 0 = 5 x the replayed ones", least=0)] = 0,
        virtual_rate: Annotated[
            float,
            Rule("learning rate of the virtual step; the official code uses its training rate (SGD, 0.1)", least=0),
        ] = 0.1,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.candidates, self.virtual_rate = candidates, virtual_rate

    def choose(self, count: int, incoming: Tensor) -> Replay | None:
        """Draw candidates, and choose those whose loss would increase most after a step on the incoming batch."""
        candidates = self.candidates or 5 * count
        require(candidates > count, "candidates", candidates, f"0, or above the {count} that are replayed")
        drawn = super().choose(candidates, incoming)
        if drawn is None or len(drawn.labels) <= count:
            return drawn
        parameters = [part for part in self.parameters() if part.requires_grad]
        gradients = torch.autograd.grad(incoming, parameters, retain_graph=True, allow_unused=True)
        moved: dict[Tensor, Tensor] = {
            part: part - self.virtual_rate * gradient
            for part, gradient in zip(parameters, gradients, strict=True)
            if gradient is not None
        }
        with torch.no_grad():
            growth = self.losses(drawn, moved) - self.losses(drawn, {})  # (n,)
        chosen = growth.topk(count).indices.sort().values
        return Replay(drawn.images[chosen], drawn.labels[chosen], drawn.rows[chosen.cpu().numpy()])

    def losses(self, drawn: Replay, moved: dict[Tensor, Tensor]) -> Tensor:
        """Compute the loss (n,) of each drawn image; ``moved`` maps parameters to the values to use instead."""

        def call(module: torch.nn.Module, values: Tensor) -> Tensor:
            tensors = {name: moved.get(part, part) for name, part in module.named_parameters()}
            tensors |= {name: part.clone() for name, part in module.named_buffers()}
            return functional_call(module, tensors, values)

        logits = call(self.classifier, call(self.head_neck, call(self.model, drawn.images)))  # (n, identities)
        return F.cross_entropy(logits, drawn.labels, reduction="none")
