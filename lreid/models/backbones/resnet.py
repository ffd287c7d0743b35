"""torchvision's ResNets without the last stride (as in BoT and DMML), with random or ImageNet weights."""

from functools import partial
from typing import Any

import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet

from lreid.models.backbones import not_downloaded


class FeatureMap(nn.Module):
    """A torchvision ResNet up to the feature map of its last stage, or of its third stage if ``stages`` is 3."""

    inner = "resnet."

    def __init__(self, resnet: ResNet, stages: int = 4) -> None:
        super().__init__()
        self.dim = resnet.fc.in_features
        if stages == 3:
            self.dim //= 2
            resnet.layer4 = nn.Sequential()
        resnet.avgpool = resnet.fc = nn.Identity()
        self.resnet = resnet

    @property
    def stages(self) -> list[nn.Sequential]:
        """The four stages of residual blocks; the last one is empty for ``resnet50_layer3``."""
        return [self.resnet.layer1, self.resnet.layer2, self.resnet.layer3, self.resnet.layer4]

    def forward(self, images: Tensor) -> Tensor:
        """Compute the feature map ``(B, dim, H/16, W/16)`` of images (B, 3, H, W)."""
        net = self.resnet
        maps = net.maxpool(net.relu(net.bn1(net.conv1(images))))  # (B, 64, H/4, W/4)
        return net.layer4(net.layer3(net.layer2(net.layer1(maps))))  # (B, dim, H/16, W/16)


def torchvision_network(name: str, imagenet: bool) -> nn.Module:
    """Build a network of torchvision with random weights or with the weights ``IMAGENET1K_V1``.

    Raises:
        ArgumentError: the weights cannot be downloaded.
    """
    try:
        return torchvision.models.get_model(name, weights="IMAGENET1K_V1" if imagenet else None)
    except OSError as error:  # no network, or the download stopped
        address = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"].url
        raise not_downloaded("imagenet", error, address) from None


def _build(name: str, imagenet: bool, stages: int = 4) -> nn.Module:
    network: Any = torchvision_network(name, imagenet)
    # The last stage keeps the resolution of the one before it: stride 1 instead of 2 (BoT, DMML).
    first = network.layer4[0]
    (first.conv2 if hasattr(first, "conv3") else first.conv1).stride = (1, 1)
    first.downsample[0].stride = (1, 1)
    return FeatureMap(network, stages)


BACKBONES = {name: partial(_build, name) for name in ("resnet18", "resnet34", "resnet50", "resnet101")}
BACKBONES["resnet50_layer3"] = partial(_build, "resnet50", stages=3)
