"""The starting model as it is: the row of a table that every method has to beat."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.methods.base import Method
from lreid.models.embedder import Embedder


class Start(Method):
    """Learns nothing: batches are drawn and ignored, and the network is evaluated as it came."""

    batches = "identities"

    def __init__(self, model: Embedder) -> None:
        super().__init__(model)
        self.idle = Parameter(torch.zeros(()))  # an optimiser wants something to hold

    def parameters(self) -> list[Parameter]:
        """Nothing of the network."""
        return [self.idle]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """0, whatever the batch."""
        return {"none": 0 * self.idle}
