"""Networks for class-incremental learning: three forms of ResNet-18, and a network with two convolutions."""

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

from lreid.errors import ArgumentError
from lreid.models.backbones.resnet import FeatureMap
from lreid.models.backbones.small import residual_block


def resnet18_cifar() -> FeatureMap:
    """Build ResNet-18 for images of 32 or 64 pixels; the stem is a 3 x 3 convolution, without stride or max-pooling.

    Source: SimCLR (Chen et al., ICML 2020, Appendix B.9). Co²L (ICCV 2021), CCLIS (AAAI 2024) and Contrast Scoring use
    the same form of ResNet-18. The network maps images (B, 3, H, W) to (B, 512, H/8, W/8); the last stage has a stride
    of 2.
    """
    network = torchvision.models.resnet18()
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()
    return FeatureMap(network)


def resnet18_plain() -> FeatureMap:
    """Build torchvision's ResNet-18 with all its strides; it maps (B, 3, H, W) to (B, 512, H/32, W/32).

    Source: Contrast Scoring (Wu et al., 2021, Appendix A.1), which uses this network on subsets of ImageNet.
    """
    return FeatureMap(torchvision.models.resnet18())


class ReducedResNet18(nn.Module):
    """The network of ER-ACE and ER-AML, a ResNet-18 with 20 instead of 64 filters in its first stage.

    Source: GEM (Lopez-Paz and Ranzato, NeurIPS 2017); later papers on online learning use it as well. The stem is a 3 x
    3 convolution without stride or max-pooling. The stages have 20, 40, 80 and 160 filters. The network maps images (B,
    3, H, W) to (B, 160, H/8, W/8). The official code averages regions of 4 x 4 positions; for images of 32 x 32 pixels,
    the region is the entire map. For larger images, the official code concatenates the averages of several regions.
    lreid averages the entire map.
    """

    dim = 160

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 20, 3, padding=1, bias=False), nn.BatchNorm2d(20), nn.ReLU(inplace=True))
        widths = (20, 20, 40, 80, 160)
        self.stages = nn.Sequential(*(_stage(widths[i], widths[i + 1], 1 if i == 0 else 2) for i in range(4)))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the last feature map ``(B, 160, H/8, W/8)`` of images (B, 3, H, W)."""
        return self.stages(self.stem(images))


def _stage(width_in: int, width: int, stride: int) -> nn.Sequential:
    """Build a stage of two residual blocks; only the first block has the stride."""
    return nn.Sequential(residual_block(width_in, width, stride), BasicBlock(width, width))


class DigitNet(nn.Module):
    """The network of Co²L (ICCV 2021, Appendix A.2) for R-MNIST.

    The network has two 5 x 5 convolutions without padding, with 20 and 50 filters. Each convolution is followed by
    max-pooling by 2. The last layer is a linear layer of width 500. The paper does not name the activation; lreid uses
    ReLU. The network maps images (B, 3, 28, 28) to features (B, 500).
    """

    dim = 500

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Sequential(
            *(nn.Conv2d(3, 20, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 50, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        )
        self.last = nn.Sequential(nn.Linear(50 * 4 * 4, self.dim), nn.ReLU(inplace=True))

    def forward(self, images: Tensor) -> Tensor:
        """Compute features ``(B, 500)`` of images (B, 3, 28, 28).

        Raises:
            ArgumentError: the images do not have 28 x 28 pixels.
        """
        height, width = images.shape[2:]
        if (height, width) != (28, 28):
            raise ArgumentError("backbone", f"is digits, which takes images of 28 x 28 pixels, got {height} x {width}")
        return self.last(torch.flatten(self.maps(images), 1))


BACKBONES = {
    "resnet18_plain": resnet18_plain,
    "resnet18_cifar": resnet18_cifar,
    "resnet18_reduced": ReducedResNet18,
    "digits": DigitNet,
}
