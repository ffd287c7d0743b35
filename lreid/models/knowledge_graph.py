"""The knowledge graph of AKA, which adds knowledge from all tasks to the features of a batch."""

import torch
from torch import Tensor, nn

from lreid.utils.devices import to_device


class KnowledgeGraph(nn.Module):
    """A layer of graph convolution over the images of a batch and the vertices of the knowledge graph.

    The layer computes ``tanh(D^-1 (A + I) X W + b)``. The rows of ``X`` are the features of the images, followed by the
    vertices. ``D`` is the diagonal matrix with the row sums of ``A + I``. ``A`` contains the weights of the edges
    between rows. The edge from image ``i`` to a different image ``j`` has the weight ``sigmoid(w (x_i - x_j) + c)``.
    The edge from an image to itself has the weight 1. The edge from image ``i`` to vertex ``v`` has the weight
    ``softmax_i(-|x_i - v|² / (2 sigma))``, so the weights of all edges to one vertex sum to 1.

    Source: Pu et al., "Lifelong Person Re-Identification via Adaptive Knowledge Accumulation" (AKA), CVPR 2021, as
    implemented in the official code. The official code also computes edges from vertices. In a single layer, edges from
    vertices have no effect on images, so lreid leaves them out. The official code draws ``W`` and ``w`` with a standard
    deviation of 1, with which the tanh saturates and gradients almost vanish. lreid draws ``W`` and ``w`` with a
    standard deviation of ``1 / sqrt(dim)``.

    All random numbers of the graph, including dropout, come from a separate generator on the CPU; the state dict
    contains its state. The graph therefore does not change other random numbers, and a resumed run draws the same
    numbers as an uninterrupted run.

    Args:
        dim: width of the features.
        sigma: width of the kernel for edges to vertices, in units of the squared distance.
        dropout: share of the entries of ``X`` that are set to 0 in training.

    Attributes:
        vertices: (V, dim) vertices, initially uniform in [0, 1), because features after a ReLU are never negative.
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
        """Compute the graph's output (B, dim), in (-1, 1), for features (B, dim); no gradient flows to the features."""
        features = features.detach()
        edges = self.edges(features)  # (B, B + V)
        nodes = self._drop(torch.cat([features, self.vertices]))  # (B + V, dim)
        return torch.tanh(edges / edges.sum(1, keepdim=True) @ nodes @ self.weight + self.bias)  # (B, dim)

    def edges(self, features: Tensor) -> Tensor:
        """Compute the edge weights (B, B + V) from each image to all images, then to all vertices.

        The edge weights are the first B rows of ``A + I``.
        """
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
        """Return the state of the random number generator, for the state dict."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the state of the random number generator."""
        self.generator.set_state(state.cpu())
