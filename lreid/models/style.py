"""DASK's style network: for every image a convolution that gives it the colours of the domain that it has learned."""

from __future__ import annotations

from torch import Tensor, nn

KERNEL = 9 * 3 * 3 + 3  # weights and biases of a 3 x 3 convolution from RGB to RGB


class StyleKernels(nn.Module):
    """AKPNet: 84 numbers for each image, the weights and biases of a 3 x 3 convolution of its own.

    The features of a small MobileNetV3, their greatest value over all positions, and two linear layers: 1,105,348
    weights of convolutions and linear layers, 4.4 MB.

    Source: DASK (AAAI 2025), official code; here it begins from random weights.
    """

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import mobilenet_v3_small  # slow to load, and no other method needs it

        self.features = mobilenet_v3_small(weights=None).features
        self.head = nn.Sequential(nn.Linear(576, 288), nn.ReLU(inplace=True), nn.Linear(288, KERNEL))

    def forward(self, images: Tensor) -> Tensor:
        """Kernels (B, 84) of images (B, 3, H, W) with values near [0, 1]."""
        return self.head(self.features(images).amax((2, 3)))
