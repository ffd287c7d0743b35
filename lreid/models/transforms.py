"""Feature transforms that replace a neck; their matrices are computed in closed form."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Whitening(nn.Module):
    """Compute ``f(x) M``, where ``f`` scales ``sign(x) |x|^p`` to unit length; ``M`` is the identity matrix at first.

    Args:
        power: exponent ``p`` of Tukey's power transform.
    """

    matrix: Tensor  # (dim, dim)
    power: Tensor  # ()

    def __init__(self, dim: int, power: float = 1.0) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("matrix", torch.eye(dim))
        self.register_buffer("power", torch.tensor(power))

    def expand(self, features: Tensor) -> Tensor:
        """Compute ``f(x)`` for features ``x`` (n, dim) in their own dtype."""
        return F.normalize(features.sign() * features.abs().pow(self.power.to(features)), dim=1)

    def forward(self, features: Tensor) -> Tensor:
        """Transform features (n, dim) to features (n, dim)."""
        return self.expand(features) @ self.matrix


class RandomProjection(nn.Module):
    """Compute ``max(x W, 0) M`` with a random ``W`` from N(0, 1); ``M`` is the identity matrix at first.

    Args:
        width: number of columns of ``W``; the transformed features have this length.
    """

    matrix: Tensor  # (width, width)
    projection: Tensor  # (dim, width)

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.dim = width
        self.register_buffer("projection", torch.randn(dim, width))
        self.register_buffer("matrix", torch.eye(width))

    def expand(self, features: Tensor) -> Tensor:
        """Compute ``max(x W, 0)`` (n, width) for features ``x`` (n, dim) in their own dtype."""
        return F.relu(features @ self.projection.to(features))

    def forward(self, features: Tensor) -> Tensor:
        """Transform features (n, dim) to features (n, width)."""
        return self.expand(features) @ self.matrix
