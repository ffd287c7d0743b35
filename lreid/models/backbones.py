"""Backbones by name: networks from images to feature maps or vectors, with or without trained weights."""

from __future__ import annotations

import difflib
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn

from lreid.errors import InputError
from lreid.files import read_tensors
from lreid.models.small import SmallResNet

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")


def build_backbone(name: str, weights: str = "none") -> tuple[nn.Module, int]:
    """A backbone and the width of its features.

    Args:
        name: ``resnet18/34/50/101`` (torchvision, last stride removed), ``small``, or ``torchreid:NAME``.
        weights: ``none`` (random), ``imagenet`` (torchvision's IMAGENET1K_V1, as in the papers; of
            torchreid's own choice for its networks), or a file with a state dict.

    Returns:
        A module that maps (B, 3, H, W) float images to (B, dim, h, w) maps or (B, dim) vectors, and ``dim``.

    Raises:
        InputError: an unknown name, weights that cannot be had, or a file that does not fit.
    """
    if name in RESNETS:
        network, dim = _torchvision_resnet(name, pretrained=weights == "imagenet")
    elif name == "small":
        if weights == "imagenet":
            raise InputError("MODEL.WEIGHTS: the small backbone has no ImageNet weights; use none or a file")
        network, dim = SmallResNet(), SmallResNet.dim
    elif name.startswith("torchreid:"):
        network, dim = _torchreid_network(name.removeprefix("torchreid:"), pretrained=weights == "imagenet")
    else:
        known = [*RESNETS, "small", "torchreid:osnet_x1_0"]
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise InputError(f"MODEL.BACKBONE: unknown backbone {name!r}; the nearest known one is {nearest}")
    if weights not in ("imagenet", "none"):
        _load_file(network, Path(weights))
    return network, dim


def _torchvision_resnet(name: str, pretrained: bool) -> tuple[nn.Module, int]:
    try:
        network = torchvision.models.get_model(name, weights="IMAGENET1K_V1" if pretrained else None)
    except OSError as error:  # no network, or the download broke off
        url = torchvision.models.get_weight(f"ResNet{name[6:]}_Weights.IMAGENET1K_V1").url
        raise InputError(
            f"MODEL.WEIGHTS imagenet: cannot be downloaded ({error}); fetch {url} elsewhere and set "
            "MODEL.WEIGHTS to that file, or set it to none to start from random weights"
        ) from None
    # The last stage keeps the resolution of the one before it: stride 1 instead of 2 (BoT, DMML).
    first = network.layer4[0]
    (first.conv2 if hasattr(first, "conv3") else first.conv1).stride = (1, 1)
    first.downsample[0].stride = (1, 1)
    dim = network.fc.in_features
    network.avgpool = network.fc = nn.Identity()
    return _FeatureMap(network), dim


class _FeatureMap(nn.Module):
    """A torchvision ResNet up to its last feature map (its own forward flattens after pooling)."""

    def __init__(self, resnet: nn.Module) -> None:
        super().__init__()
        self.resnet = resnet

    def forward(self, images: Tensor) -> Tensor:
        net = self.resnet
        maps = net.maxpool(net.relu(net.bn1(net.conv1(images))))  # (B, 64, H/4, W/4)
        return net.layer4(net.layer3(net.layer2(net.layer1(maps))))  # (B, dim, H/16, W/16)


def _torchreid_network(name: str, pretrained: bool) -> tuple[nn.Module, int]:
    try:  # the package on PyPI nests its modules one level deeper than its authors' own
        from torchreid.reid.models import build_model
    except ImportError:
        try:
            from torchreid.models import build_model
        except ImportError as error:
            raise InputError(
                f"MODEL.BACKBONE torchreid:{name}: torchreid cannot be imported ({error}); "
                "install it with: pip install torchreid==0.2.5"
            ) from None
    try:
        # With the triplet loss the network returns (logits, features) in training and features else.
        network = build_model(name, num_classes=1, loss="triplet", pretrained=pretrained)
    except KeyError as error:
        raise InputError(f"MODEL.BACKBONE torchreid:{name}: {' '.join(str(error).split())}") from None
    adapter = _TorchreidFeatures(network)
    with torch.no_grad():
        dim = adapter.eval()(torch.zeros(1, 3, 256, 128)).shape[1]
    return adapter.train(), dim


class _TorchreidFeatures(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        output = self.network(images)
        return output[1] if isinstance(output, tuple) else output  # (B, dim)


def _load_file(network: nn.Module, file: Path) -> None:
    """Loads a plain state dict; names of a torchvision classifier are left out."""
    state = read_tensors(file)
    state = state.get("state_dict", state)
    target = network.resnet if isinstance(network, _FeatureMap) else network
    state = {key.removeprefix("module."): value for key, value in state.items()}
    state = {key: value for key, value in state.items() if not key.startswith(("fc.", "classifier."))}
    wanted = target.state_dict()
    misfits = [key for key, value in state.items() if key in wanted and wanted[key].shape != value.shape]
    missing = sorted(wanted.keys() - state.keys())
    unknown = sorted(state.keys() - wanted.keys())
    if misfits or missing or unknown:
        parts = [("missing", missing), ("unknown", unknown), ("of another shape", misfits)]
        told = "; ".join(f"{len(names)} {what} ({names[0]} …)" for what, names in parts if names)
        raise InputError(
            f"{file}: does not fit this backbone: {told}; set MODEL.BACKBONE to what it was made for"
        )
    target.load_state_dict(state)
