"""EfficientNets and MobileNetV2 of timm without their last stride, such as ``timm:tf_efficientnet_lite0``."""

from __future__ import annotations

import difflib
from typing import Any

from torch import Tensor, nn

from lreid.errors import ArgumentError
from lreid.extras import Extra


class TimmFeatures(nn.Module):
    """An EfficientNet of timm up to its last map."""

    inner = "network."

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.dim = network, network.num_features
        self.stages: list[list[nn.Module]] = []  # by the size of their maps, without blocks of the stem's
        strided: list[Any] = []
        for blocks in network.blocks:
            if found := [each for each in blocks.modules() if getattr(each, "stride", None) == (2, 2)]:
                self.stages.append([])
                strided = found
            for stage in self.stages[-1:]:
                stage += blocks
        for each in strided:  # the last ones of the network
            each.stride = (1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """The feature map, ``(B, dim, H/16, W/16)``."""
        return self.network(images)


def build(name: str) -> nn.Module:
    """A network of timm by its name there, of those that timm builds as EfficientNets; its weights are random.

    Raises:
        ArgumentError: timm has no such EfficientNet.
        InputError: it is not installed.
    """
    timm = Extra("timm", "start").load()
    known = timm.list_models(module="efficientnet")
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ArgumentError(
            "backbone",
            f"timm:{name} is no EfficientNet or MobileNetV2 of timm; the nearest known one is timm:{nearest}",
        )
    return TimmFeatures(timm.create_model(name, num_classes=0, global_pool=""))


BACKBONES = {"timm:": build}
