"""Bottleneck adapters: a narrow MLP in parallel to the MLP of each block."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from lreid.models.adapters import Place, require_narrow


class Bottleneck(nn.Module):
    """Add ``U relu(D x)`` to the output of a module with input ``x``; ``U`` is zero at first.

    Source: AdaptFormer (Chen et al., NeurIPS 2022); lreid leaves out AdaptFormer's factor of 0.1.

    Args:
        inner: module that maps (..., C) to (..., C').
        width_in, width_out: widths C and C' of input and output.
        width: width of the bottleneck, the number of rows of ``D``.
    """

    def __init__(self, inner: nn.Module, width_in: int, width_out: int, width: int) -> None:
        super().__init__()
        self.inner, self.down, self.up = inner, nn.Linear(width_in, width), nn.Linear(width, width_out)
        nn.init.kaiming_uniform_(self.down.weight, nonlinearity="relu")
        for each in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(each)

    def forward(self, tokens: Tensor, *args: Any, **options: Any) -> Tensor:
        """Compute outputs (..., C') from tokens (..., C)."""
        return self.inner(tokens, *args, **options) + self.up(F.relu(self.down(tokens)))


def insert(network: nn.Module, places: list[Place], width: int) -> None:
    """Add a bottleneck in parallel to the MLP of every block, or to the attention of blocks without an MLP."""
    require_narrow(width, places)
    for place in places:
        for part in (f"{place.name}.mlp", f"{place.name}.attn"):
            if linears := [each for name, each in place.linears.items() if name.startswith(f"{part}.")]:
                inner = network.get_submodule(part)
                wrapped = Bottleneck(inner, linears[0].in_features, linears[-1].out_features, width)
                network.set_submodule(part, wrapped)
                break
