"""torchvision's MobileNetV2 without its last stride."""

from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from lreid.models.backbones.resnet import torchvision_network


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., CVPR 2018) without the layers after its last feature map."""

    dim = 1280

    def __init__(self, *, imagenet: bool = False) -> None:
        super().__init__()
        network: Any = torchvision_network("mobilenet_v2", imagenet)
        network.features[14].conv[1][0].stride = (1, 1)  # the last maps keep their size, as in the ResNets
        self.features: nn.Sequential = network.features

    @property
    def stages(self) -> list[nn.Sequential]:
        """The blocks after the stem, grouped by their map size in the original network: 1/4, 1/8, 1/16 and 1/32."""
        return [self.features[begin:end] for begin, end in pairwise((2, 4, 7, 14, 18))]

    def forward(self, images: Tensor) -> Tensor:
        """Compute the feature map ``(B, 1280, H/16, W/16)`` of images (B, 3, H, W)."""
        return self.features(images)


BACKBONES = {"mobilenet_v2": MobileNetV2}
