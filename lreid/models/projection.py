"""The projection head of contrastive methods, which stands between the features and the loss."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from lreid.models.embedder import Embedder
from lreid.models.parts import bn_neck


class ProjectionHead(nn.Sequential):
    """A perceptron with one hidden layer, which is as wide as the features; maps (B, dim) to (B, width).

    Source: the head ``mlp`` of SupCon (Khosla et al., NeurIPS 2020), which Co²L and CCLIS took over. Its outputs are
    not yet of unit length, since distillation of projections (Co²L, Table 6) needs them as they are.

    Args:
        dim: width of the features.
        width: width of the projections.
        neck: with a BatchNorm before it, as it is not in SupCon.
    """

    def __init__(self, dim: int, width: int = 128, *, neck: bool = False) -> None:
        before = [bn_neck(dim)] if neck else []
        super().__init__(*before, nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, width))
        self.width = width


class Projected(NamedTuple):
    """Features (B, dim) and projections (B, width) of a batch, neither of unit length."""

    features: Tensor
    projections: Tensor


class ProjectedEmbedder(nn.Module):
    """An embedder with a projection head after it; retrieval uses the embedder alone.

    Args:
        model: the embedder, which is shared and not copied.
        width, neck: as in :class:`ProjectionHead`.
    """

    def __init__(self, model: Embedder, width: int = 128, *, neck: bool = False) -> None:
        super().__init__()
        self.model = model
        self.head = ProjectionHead(model.dim, width, neck=neck).to(model.mean.device)

    def forward(self, images: Tensor) -> Projected:
        """Projections of normalised images (B, 3, H, W)."""
        features = self.model(images)  # (B, dim)
        return Projected(features, self.head(features))
