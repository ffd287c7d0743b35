"""A linear classifier that grows with the identities of a stream."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GrowingClassifier(nn.Module):
    """Logits of all identities so far: a linear layer without bias, as behind BoT's neck.

    Args:
        dim: width of the features.
        classes: identities to begin with.
    """

    def __init__(self, dim: int, classes: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.grow(classes)

    def __len__(self) -> int:
        return len(self.weight)

    def grow(self, classes: int) -> None:
        """Adds rows for new identities, drawn with a standard deviation of 0.001 (BoT); the others stay."""
        new = torch.randn(classes, self.weight.shape[1]).to(self.weight) * 0.001
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new]))

    def forward(self, features: Tensor) -> Tensor:
        """(B, dim) features to (B, classes) logits."""
        return nn.functional.linear(features, self.weight)
