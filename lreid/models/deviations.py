"""DKP's network: a feature is a normal distribution, and a separate head computes its standard deviation."""

from torch import Tensor, nn
from torch.nn import functional as F

from lreid.models.classifier import ClassifyingEmbedder, GrowingClassifier
from lreid.models.embedder import Embedder, pooled

LEAST = 1e-4  # smallest standard deviation


class DeviationHead(nn.Module):
    """Compute the standard deviations (B, dim) of features from maps (B, dim, h, w), for training only.

    The head consists of an 8 x 8 convolution without padding, the embedder's pooling, a linear layer, scaling to unit
    length, and ``max(x, 0) + 1e-4``. For maps below 8 x 8, the convolution is smaller. DKP's maps have 16 x 8 positions
    and 1024 channels, so the convolution has 67 million weights.

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
        """Compute standard deviations (B, dim), above 0, from maps (B, dim, h, w)."""
        pooled_maps = pooled(self.conv(maps), self.pooling)  # (B, dim)
        return F.normalize(self.linear(pooled_maps), dim=1).relu() + LEAST


class DistributionEmbedder(ClassifyingEmbedder):
    """An embedder for training, with a neck, a classifier and a head for standard deviations."""

    def __init__(self, model: Embedder, classifier: GrowingClassifier) -> None:
        super().__init__(model, classifier)
        self.deviations = DeviationHead(model).to(model.mean.device)

    def distributions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute means of unit length and standard deviations, both (B, dim), of normalised images (B, 3, H, W)."""
        maps = self.model.maps(images)
        return F.normalize(self.model.pool(maps), dim=1), self.deviations(maps)
