"""The initial model without training: a baseline that every method should exceed."""

import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.methods.base import Batch, Embedder, Method


class Start(Method):
    """Evaluate the initial network: this method ignores the batches and trains nothing."""

    batches = "identities"

    def __init__(self, model: Embedder) -> None:
        super().__init__(model)
        self.idle = Parameter(torch.zeros(()))  # dummy, because an optimiser needs a parameter

    def parameters(self) -> list[Parameter]:
        """Return a dummy parameter, because an optimiser needs a parameter."""
        return [self.idle]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Return 0 for every batch."""
        return {"none": 0 * self.idle}
