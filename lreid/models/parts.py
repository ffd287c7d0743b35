"""Small parts that networks and methods share: the layers of a backbone, a neck, a temporary evaluation mode."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from lreid.extras import Extra


def layers_of(backbone: nn.Module) -> list[list[nn.Parameter]]:
    """Group the parameters of a backbone by layer, from the input to the output.

    timm defines the layers of its networks: the stem, then each block with its norms. For other networks, the layers
    are the children of the outermost module that has several children.
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
    """Create BoT's neck: a BatchNorm of features (B, dim) whose shift stays 0, so that outputs have mean 0.

    Source: BNNeck in the official code of BoT (Luo et al., CVPRW 2019).
    """
    neck = nn.BatchNorm1d(dim)
    neck.bias.requires_grad_(False)
    return neck


def neck_in(state: Mapping[str, Tensor]) -> bool | nn.Module:
    """The neck in a model's state dict: whether it is a BatchNorm, or a new transform of its shape."""
    if "neck.matrix" not in state:
        return "neck.weight" in state
    from lreid.models.transforms import RandomProjection, Whitening

    if "neck.projection" in state:
        return RandomProjection(*state["neck.projection"].shape)
    return Whitening(len(state["neck.matrix"]))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A context in which a module is in evaluation mode; its mode is restored afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
