"""DKP's network: features are normal distributions, and a second head computes the standard deviations."""

from torch import Tensor, nn
from torch.nn import functional as F

from lreid.models.classifier import ClassifyingEmbedder, GrowingClassifier
from lreid.models.embedder import Embedder, pooled

LEAST = 1e-4  # smallest standard deviation


class DeviationHead(nn.Module):
    """Standard deviations (B, dim) of features from maps (B, dim, h, w), for training only.

    The head applies an 8 x 8 convolution without padding (smaller for a smaller map), the embedder's pooling, a linear
    layer, scaling to unit length, and ``max(x, 0) + 1e-4``. On DKP's maps of 16 x 8 with 1024 channels, the convolution
    has 67 million weights.

    Source: DKP (CVPR 2024), official code.

    Raises:
        ArgumentError: the backbone returns vectors instead of maps.
    """

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        height, width = model.map_size()
        self.conv = nn.Conv2d(model.dim, model.dim, (min(8, height), min(8, width)), bias=False)
        self.linear = nn.Linear(model.dim, model.dim)
        self.pooling = model.pooling

    def forward(self, maps: Tensor) -> Tensor:
        """Standard deviations (B, dim), above 0, of maps (B, dim, h, w)."""
        pooled_maps = pooled(self.conv(maps), self.pooling)  # (B, dim)
        return F.normalize(self.linear(pooled_maps), dim=1).relu() + LEAST


class DistributionEmbedder(ClassifyingEmbedder):
    """An embedder with neck, classifier and a head of standard deviations for training."""

    def __init__(self, model: Embedder, classifier: GrowingClassifier) -> None:
        super().__init__(model, classifier)
        self.deviations = DeviationHead(model).to(model.mean.device)

    def distributions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Means of unit length and standard deviations, both (B, dim), of normalised images (B, 3, H, W)."""
        maps = self.model.maps(images)
        return F.normalize(self.model.pool(maps), dim=1), self.deviations(maps)
