"""Networks for class-incremental learning: forms of ResNet, and a network with two convolutions."""

from functools import partial

import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock

from lreid.errors import ArgumentError
from lreid.models.backbones.resnet import FeatureMap
from lreid.models.backbones.small import residual_block


def _cifar(name: str) -> FeatureMap:
    """Build a ResNet for images of 32 or 64 pixels; the stem is a 3 x 3 convolution, without stride or max-pooling.

    Source: SimCLR (Chen et al., ICML 2020, Appendix B.9). Co²L (ICCV 2021), CCLIS (AAAI 2024, Table 8 with ResNet-34
    and ResNet-50) and Contrast Scoring use the same form. The network maps images (B, 3, H, W) to (B, dim, H/8, W/8);
    the last stage has a stride of 2.
    """
    network = torchvision.models.get_model(name)
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
    3 convolution without stride or max-pooling. The stages have 20, 40, 80 and 160 filters. As in the official code,
    the map (B, 160, H/8, W/8) is averaged over regions of 4 x 4 positions, and the averages are concatenated. Images of
    32 x 32 pixels have one region, and images of 84 x 84 pixels four, so their features have 640 numbers.

    Args:
        size: height and width of the images.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.regions = tuple(max(side // 32, 1) for side in size)  # rows and columns
        self.dim = 160 * self.regions[0] * self.regions[1]
        self.stem = nn.Sequential(nn.Conv2d(3, 20, 3, padding=1, bias=False), nn.BatchNorm2d(20), nn.ReLU(inplace=True))
        widths = (20, 20, 40, 80, 160)
        self.stages = nn.Sequential(*(_stage(widths[i], widths[i + 1], 1 if i == 0 else 2) for i in range(4)))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the map ``(B, 160, H/8, W/8)`` of images with one region, or features ``(B, dim)`` of larger ones."""
        maps = self.stages(self.stem(images))  # (B, 160, H/8, W/8)
        if self.dim == 160:
            return maps
        rows, columns = self.regions
        return F.avg_pool2d(maps, 4)[:, :, :rows, :columns].flatten(1)  # (B, 160 * rows * columns)


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
        return self.last(self.maps(images).flatten(1))


BACKBONES = {
    "resnet18_plain": resnet18_plain,
    **{f"{name}_cifar": partial(_cifar, name) for name in ("resnet18", "resnet34", "resnet50")},
    "resnet18_reduced": ReducedResNet18,
    "digits": DigitNet,
}
