"""Small functions for networks and methods: layers of a backbone, BoT's neck, temporary evaluation mode."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from lreid.utils.extras import Extra


def layers_of(backbone: nn.Module) -> list[list[nn.Parameter]]:
    """Group the parameters of a backbone by layer, from the input to the output.

    For a network of timm, timm defines the layers: the stem, then each block with its norms. For other networks, the
    layers are the children of the outermost module that has several children.
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
    """Create BoT's neck, a BatchNorm for features (B, dim) without a shift, so that outputs have mean 0.

    Source: BNNeck in the official code of BoT (Luo et al., CVPRW 2019).
    """
    neck = nn.BatchNorm1d(dim)
    neck.bias.requires_grad_(False)
    return neck


def neck_in(state: Mapping[str, Tensor]) -> bool | nn.Module:
    """Return the neck that a state dict needs: a transform of the same shape, True for a BatchNorm, False for none."""
    if "neck.matrix" not in state:
        return "neck.weight" in state
    from lreid.models.transforms import RandomProjection, Whitening

    if "neck.projection" in state:
        return RandomProjection(*state["neck.projection"].shape)
    return Whitening(len(state["neck.matrix"]))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode within a context, and restore the mode of each of its parts afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
