"""Linear classifiers that grow with the identities of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class GrowingClassifier(nn.Module):
    """Logits of all identities so far: a linear layer without bias, as behind BoT's neck.

    Args:
        dim: width of the features.
        classes: identities to begin with.
        std: standard deviation of the rows of new identities.
    """

    def __init__(self, dim: int, classes: int = 0, *, std: float = 0.001) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.grow(classes)

    def __len__(self) -> int:
        return len(self.weight)

    def grow(self, classes: int) -> None:
        """Adds normally distributed rows for new identities; the others stay. ``weight`` is a new parameter."""
        new = torch.randn(classes, self.weight.shape[1]).to(self.weight) * self.std
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new]))

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As of every module; takes as many identities as the state has."""
        room = self.weight.new_empty(len(state["weight"]), self.weight.shape[1])
        self.weight = nn.Parameter(room, requires_grad=self.weight.requires_grad)
        return super().load_state_dict(state, strict, assign)

    def forward(self, features: Tensor) -> Tensor:
        """(B, dim) features to (B, classes) logits."""
        return nn.functional.linear(features, self.weight)


class CosineClassifier(GrowingClassifier):
    """Logits that are ``scale`` times the cosine of features and rows, so no identity wins by its length.

    Source: the official code of ER-ACE and ER-AML, where ``scale`` is 1 / tau of Eq. 2: lengths count as
    ``|x| + 1e-5``. The length of a row does not change the logits but divides its gradient, so new rows get the
    spread of ``torch.nn.Linear``, as there.

    Args:
        dim: width of the features.
        classes: identities to begin with.
        scale: of the cosines; logits are in ``[-scale, scale]``.
    """

    def __init__(self, dim: int, classes: int = 0, *, scale: float = 10.0) -> None:
        super().__init__(dim, classes, std=(3 * dim) ** -0.5)
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        """(B, dim) features to (B, classes) logits."""
        return self.scale * nn.functional.linear(_normalized(features), _normalized(self.weight))


def _normalized(vectors: Tensor) -> Tensor:
    return vectors / (torch.linalg.vector_norm(vectors, dim=1, keepdim=True) + 1e-5)
