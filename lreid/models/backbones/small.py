"""A small residual network for the built-in benchmark; it trains from scratch on two cores in about two minutes."""

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock


class SmallResNet(nn.Module):
    """A network of four residual blocks with widths 32 to 256; as in ResNets for re-ID, the last one has no stride.

    The network maps images (B, 3, H, W) to a feature map (B, 256, H/8, W/8). The network has about 1.2 M parameters.
    For an image of 64 x 32 pixels, it needs 0.06 billion multiply-accumulate operations.
    """

    dim = 256

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        shapes = ((32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 1))  # widths in and out, stride
        self.blocks = nn.Sequential(*(residual_block(*shape) for shape in shapes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def stages(self) -> list[list[nn.Module]]:
        """The four stages, each a single block."""
        return [[block] for block in self.blocks]

    def forward(self, images: Tensor) -> Tensor:
        """Compute the last feature map ``(B, 256, H/8, W/8)`` of images (B, 3, H, W)."""
        return self.blocks(self.stem(images))  # (B, 256, H/8, W/8)


def residual_block(width_in: int, width_out: int, stride: int) -> BasicBlock:
    """Build a residual block; a convolution is its shortcut if the block changes the width or the size of maps."""
    shortcut = None
    if stride != 1 or width_in != width_out:
        shortcut = nn.Sequential(nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out))
    return BasicBlock(width_in, width_out, stride, shortcut)


BACKBONES = {"small": SmallResNet}
