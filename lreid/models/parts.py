"""Small parts that networks and methods share: layers of a backbone, a neck, a temporary evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from lreid.extras import Extra


def layers_of(backbone: nn.Module) -> list[list[nn.Parameter]]:
    """Parameters by depth, from the images on: the first are frozen first, and learn at lower rates.

    Networks of timm define them: the stem, then a block at a time, to which the norms between them belong. Of
    others a layer is a child of the module, of the outermost that has several.
    """
    inner: Any = getattr(backbone, "network", backbone)
    if hasattr(inner, "group_matcher"):
        depths = Extra("timm.models", "timm").group_parameters(inner, inner.group_matcher(coarse=False), reverse=True)
        groups: list[list[nn.Parameter]] = [[] for _ in range(max(depths.values()) + 1)]
        for name, parameter in inner.named_parameters():
            groups[depths[name]].append(parameter)
        return groups
    while len(parts := [each for each in inner.children() if next(each.parameters(), None) is not None]) == 1:
        (inner,) = parts
    return [list(each.parameters()) for each in parts or [inner]]


def bn_neck(dim: int) -> nn.BatchNorm1d:
    """BatchNorm of features (B, dim) whose shift stays 0, so that they lie around the origin of a linear classifier.

    Source: BNNeck of BoT (Luo et al., CVPRW 2019), as in its official code.
    """
    neck = nn.BatchNorm1d(dim)
    neck.bias.requires_grad_(False)
    return neck


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A context with a module in evaluation mode (running statistics of BatchNorm); its mode is restored afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
