"""The knowledge graph of AKA: vertices learned over all tasks, and what they add to the features of a batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lreid.devices import to_device


class KnowledgeGraph(nn.Module):
    """One layer of graph convolution over the images of a batch and the vertices of the knowledge graph.

    With ``X`` the features and the vertices one below the other, it gives ``tanh(D^-1 (A + I) X W + b)``, where
    ``D`` holds the row sums of ``A + I``. ``A`` weights the edge from image ``i`` to another image ``j`` by
    ``sigmoid(w (x_i - x_j) + c)``, that to itself by 1, and that to vertex ``v`` by
    ``softmax_i(-|x_i - v|² / (2 sigma))``: each vertex divides itself among the images.

    Source: Pu et al., "Lifelong Person Re-Identification via Adaptive Knowledge Accumulation" (AKA), CVPR 2021, in
    the form of the official code. It also computes the edges that leave the vertices, but with one layer those
    reach no image; here they are left out. It draws ``W`` and ``w`` with a standard deviation of 1, so that the tanh
    begins saturated and the graph gets hardly any gradient; here it is ``1 / sqrt(dim)``.

    Everything random, dropout included, comes from a generator of its own on the CPU, which is part of the state
    dict: the graph shifts no other random number, and a resumed run draws the same.

    Args:
        dim: width of the features.
        vertices: vertices of the graph.
        sigma: width of the kernel of the edges to the vertices, in units of the squared distance.
        dropout: share of the numbers in ``X`` that are set to 0 in training.
        seed: seed of the generator.

    Attributes:
        vertices: (V, dim), drawn uniformly from [0, 1) like features after a ReLU.
    """

    def __init__(
        self, dim: int, vertices: int = 64, *, sigma: float = 2.0, dropout: float = 0.6, seed: int = 0
    ) -> None:
        super().__init__()
        self.sigma, self.dropout = sigma, dropout
        self.generator = torch.Generator().manual_seed(seed)
        self.vertices = nn.Parameter(torch.rand(vertices, dim, generator=self.generator))
        self.edge_weight = nn.Parameter(torch.randn(dim, generator=self.generator) / dim**0.5)
        self.edge_bias = nn.Parameter(torch.tensor(0.1))
        self.weight = nn.Parameter(torch.randn(dim, dim, generator=self.generator) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, features: Tensor) -> Tensor:
        """The graph's addition to features (B, dim), in (-1, 1); it returns no gradient to them."""
        features = features.detach()
        edges = self.edges(features)  # (B, B + V)
        nodes = self._drop(torch.cat([features, self.vertices]))  # (B + V, dim)
        return torch.tanh(edges / edges.sum(1, keepdim=True) @ nodes @ self.weight + self.bias)  # (B, dim)

    def edges(self, features: Tensor) -> Tensor:
        """Weights (B, B + V) from the images to each other and to the vertices: the upper rows of ``A + I``."""
        height = features @ self.edge_weight  # (B,)
        among = torch.sigmoid(height[:, None] - height + self.edge_bias)  # (B, B)
        itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
        squared = torch.cdist(features, self.vertices).square()  # (B, V)
        return torch.cat([among.masked_fill(itself, 2.0), (-squared / (2 * self.sigma)).softmax(0)], 1)

    def _drop(self, nodes: Tensor) -> Tensor:
        if not self.training:
            return nodes
        mask = torch.rand(nodes.shape, generator=self.generator) >= self.dropout
        return nodes * to_device(mask, nodes.device) / (1 - self.dropout)

    def get_extra_state(self) -> Tensor:
        """The state of the generator, which goes into the state dict."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Takes back the state of the generator."""
        self.generator.set_state(state.cpu())
