"""The ResNet-50 of fast-reid's published models, such as ``fastreid:resnet50_nl_gem``."""

import torch
from torch import Tensor, nn
from torchvision.models.resnet import resnet50

from lreid.errors import ArgumentError


class NonLocal(nn.Module):
    """Non-local block (Wang et al., CVPR 2018); its attention is the dot products divided by the number of positions.

    The block has a single inner channel, as in fast-reid's code and weights.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv2d(channels, 1, 1) for _ in range(3))
        norm = nn.BatchNorm2d(channels)
        nn.init.zeros_(norm.weight)
        self.W = nn.Sequential(nn.Conv2d(1, channels, 1), norm)

    def forward(self, maps: Tensor) -> Tensor:
        """Transform maps (B, C, h, w) to maps of the same shape."""
        g, theta, phi = (layer(maps).flatten(2) for layer in (self.g, self.theta, self.phi))  # (B, 1, hw)
        # With one inner channel, (theta^T phi) g^T is theta times a number.
        attention = theta * (phi * g).mean(2, keepdim=True)  # (B, 1, hw)
        return maps + self.W(attention.view(-1, 1, *maps.shape[2:]))


class LearnedGeM(nn.Module):
    """Generalised-mean pooling (GeM) of maps, with a learned exponent (Radenović et al., TPAMI 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor([3.0]))

    def forward(self, maps: Tensor) -> Tensor:
        """Compute vectors (B, C) from maps (B, C, h, w)."""
        return maps.clamp(min=1e-6).pow(self.p).mean((2, 3)).pow(1 / self.p)


class FastReidResNet50(nn.Module):
    """The ResNet-50 of fast-reid, which has no last stride and whose max-pooling rounds sizes up.

    Args:
        nl: whether to add non-local blocks: after each of the last two blocks of the second stage, and after each of
            the last three blocks of the third stage.
        gem: whether to pool maps by a generalised mean with a learned exponent; otherwise the network returns maps.
    """

    dim = 2048

    def __init__(self, *, nl: bool = False, gem: bool = False) -> None:
        super().__init__()
        net = resnet50()
        self.conv1, self.bn1, self.relu = net.conv1, net.bn1, net.relu
        self.maxpool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.layer1, self.layer2, self.layer3, self.layer4 = net.layer1, net.layer2, net.layer3, net.layer4
        self.layer4[0].conv2.stride = self.layer4[0].downsample[0].stride = (1, 1)
        self.NL_2 = nn.ModuleList(NonLocal(512) for _ in range(2 * nl))
        self.NL_3 = nn.ModuleList(NonLocal(1024) for _ in range(3 * nl))
        self.pool = LearnedGeM() if gem else nn.Identity()

    @property
    def stages(self) -> list[nn.Sequential]:
        """The four stages of residual blocks."""
        return [self.layer1, self.layer2, self.layer3, self.layer4]

    def forward(self, images: Tensor) -> Tensor:
        """Compute maps (B, 2048, H/16, W/16), or vectors (B, 2048) with GeM pooling, of images (B, 3, H, W)."""
        maps = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(images)))))
        maps = _with_non_local(self.layer2, self.NL_2, maps)
        maps = _with_non_local(self.layer3, self.NL_3, maps)
        return self.pool(self.layer4(maps))


def _with_non_local(blocks: nn.Module, non_local: nn.ModuleList, maps: Tensor) -> Tensor:
    """Apply a stage of residual blocks, in which a non-local block follows each of the last blocks."""
    before = len(list(blocks.children())) - len(non_local)
    for place, block in enumerate(blocks.children()):
        maps = block(maps)
        if place >= before:
            maps = non_local[place - before](maps)
    return maps


def build(name: str) -> FastReidResNet50:
    """Build ``resnet50``; the suffixes ``_nl``, ``_gem`` and ``_nl_gem`` add non-local blocks and GeM pooling.

    Raises:
        ArgumentError: the name is unknown.
    """
    parts = name.split("_")[1:]
    if name not in ("resnet50", "resnet50_nl", "resnet50_gem", "resnet50_nl_gem"):
        raise ArgumentError("backbone", f"fastreid:{name} is unknown; use resnet50, also with _nl, _gem or _nl_gem")
    return FastReidResNet50(**dict.fromkeys(parts, True))


BACKBONES = {"fastreid:": build}
