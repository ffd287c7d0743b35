"""Backbones by name: networks from images to feature maps or vectors, with or without trained weights."""

from __future__ import annotations

import difflib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet

from lreid.errors import InputError
from lreid.files import read_tensors
from lreid.models.small import SmallResNet
from lreid.zoo import PREFIX, find, read_safetensors, weights_file

logger = logging.getLogger("lreid")

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")

# torchreid's checkpoints hold a Rank-1 of this kind beside the weights; numpy 1 had it in another module.
_scalar = np.float64(0).__reduce__()[0]
NUMPY_SCALARS: list[Any] = [
    *((_scalar, f"{numpy}.multiarray.scalar") for numpy in ("numpy.core", "numpy._core")),
    np.dtype,
    type(np.dtype(np.float64)),
    type(np.dtype(np.float32)),
]


def build_backbone(name: str, weights: str = "none") -> tuple[nn.Module, int]:
    """A backbone and the width of its features.

    Args:
        name: ``resnet18/34/50/101`` (torchvision, last stride removed), ``small``, or ``torchreid:NAME``.
        weights: ``none`` (random), ``imagenet`` (torchvision's IMAGENET1K_V1, as in the papers; of
            torchreid's own choice for its networks), ``zoo:NAME`` (see :mod:`lreid.zoo`), or a file: a state dict of
            torchvision or torchreid, a checkpoint of a run, or ``.safetensors``. Necks and classifiers are left out.

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
        _load_weights(network, weights)
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

    def __init__(self, resnet: ResNet) -> None:
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


def _load_weights(network: nn.Module, weights: str) -> None:
    """Starts a backbone from trained weights and tells every tensor that is left out or missing."""
    state = _backbone_state(weights, network)
    wanted = network.state_dict()
    # torchreid's networks carry a classifier along, and files from before torch 0.4.1 have no counters.
    needed = {key for key in wanted if "classifier" not in key and not key.endswith("num_batches_tracked")}
    misfits = {
        "left out": state.keys() - wanted.keys(),
        "missing": wanted.keys() - state.keys(),
        "of another shape": {key for key in wanted.keys() & state.keys() if wanted[key].shape != state[key].shape},
    }
    for what, names in misfits.items():
        for name in sorted(names):
            logger.info("%s: %s is %s", weights, name, what)
    told = [
        f"{len(names)} tensors {what} ({min(names)} …)"
        for what, all_names in misfits.items()
        if (names := all_names & needed)
    ]
    if told:
        raise InputError(
            f"{weights}: does not fit this backbone: {'; '.join(told)}; set MODEL.BACKBONE to what it was made for"
        )
    fitting = {key: state[key] for key in wanted.keys() & state.keys() - misfits["of another shape"]}
    network.load_state_dict(fitting, strict=False)


def _backbone_state(weights: str, network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file or an entry of the zoo, under the names that they would have in a backbone."""
    if weights.startswith(PREFIX):
        state = read_safetensors(weights_file(find(weights.removeprefix(PREFIX))))
    elif weights.endswith(".safetensors"):
        state = read_safetensors(Path(weights))
    else:
        with torch.serialization.safe_globals(NUMPY_SCALARS):
            content = read_tensors(weights)
        # A checkpoint of a run, one of torchreid, or a plain state dict.
        layouts = (content.get("model"), content.get("state_dict"), content)
        state = next((each for each in layouts if _is_state_dict(each)), {})
        if not state:
            raise InputError(
                f"{weights}: holds no tensors by name, neither itself nor under model or state_dict; "
                "set MODEL.WEIGHTS to a state dict"
            )
    state = {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, Tensor)}
    if any(key.startswith("backbone.") for key in state):  # of a model of lreid
        return {key.removeprefix("backbone."): value for key, value in state.items()}
    inner = {_FeatureMap: "resnet.", _TorchreidFeatures: "network."}.get(type(network), "")
    return {inner + key: value for key, value in state.items()}


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(key, str) for key in value)
        and any(isinstance(each, Tensor) for each in value.values())
    )
