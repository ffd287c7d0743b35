"""The projection head of contrastive methods, between the features and the loss."""

from typing import NamedTuple

from torch import Tensor, nn

from lreid.models.embedder import Embedder
from lreid.models.parts import bn_neck


class ProjectionHead(nn.Sequential):
    """A multi-layer perceptron that maps features (B, dim) to projections (B, width), with a hidden width of ``dim``.

    Source: the head ``mlp`` of SupCon (Khosla et al., NeurIPS 2020), which Co²L and CCLIS also use. The head does not
    scale projections to unit length, because the distillation of projections (Co²L, Table 6) needs unscaled values.

    Args:
        width: length of the projections.
        neck: whether a BatchNorm precedes the head; SupCon has no BatchNorm before its head.
    """

    def __init__(self, dim: int, width: int = 128, *, neck: bool = False) -> None:
        before = [bn_neck(dim)] if neck else []
        super().__init__(*before, nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, width))
        self.width = width


class Projected(NamedTuple):
    """Features (B, dim) and projections (B, width) of a batch, neither of which is scaled to unit length."""

    features: Tensor
    projections: Tensor


class ProjectedEmbedder(nn.Module):
    """An embedder followed by a projection head; retrieval only uses the embedder.

    Args:
        model: the embedder; it is not copied.
        width, neck: see :class:`ProjectionHead`.
    """

    def __init__(self, model: Embedder, width: int = 128, *, neck: bool = False) -> None:
        super().__init__()
        self.model = model
        self.head = ProjectionHead(model.dim, width, neck=neck).to(model.mean.device)

    def forward(self, images: Tensor) -> Projected:
        """Compute features and projections of normalised images (B, 3, H, W)."""
        features = self.model(images)  # (B, dim)
        return Projected(features, self.head(features))
