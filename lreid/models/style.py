"""DASK's style network: from an image, it computes a convolution that gives images the colours of a past domain."""

from torch import Tensor, nn

KERNEL = 9 * 3 * 3 + 3  # weights and biases of a 3 x 3 convolution from RGB to RGB


class StyleKernels(nn.Module):
    """AKPNet, which computes 84 numbers per image: the weights and biases of a 3 x 3 convolution for this image.

    The network consists of a small MobileNetV3, max-pooling over all positions, and two linear layers. The convolutions
    and linear layers together have 1,105,348 weights (4.4 MB).

    Source: DASK (AAAI 2025), official code. lreid starts from random weights.
    """

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import mobilenet_v3_small  # slow to load, and no other method needs it

        self.features = mobilenet_v3_small(weights=None).features
        self.head = nn.Sequential(nn.Linear(576, 288), nn.ReLU(inplace=True), nn.Linear(288, KERNEL))

    def forward(self, images: Tensor) -> Tensor:
        """Compute kernels (B, 84) for images (B, 3, H, W) with values near [0, 1]."""
        return self.head(self.features(images).amax((2, 3)))
