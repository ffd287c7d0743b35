"""The layers of a backbone, from the images on: what is frozen first, and learns at lower rates."""

from __future__ import annotations

from typing import Any

from torch import nn

from lreid.extras import Extra


def layers_of(backbone: nn.Module) -> list[list[nn.Parameter]]:
    """Parameters by depth.

    Networks of timm tell it themselves: the stem, then a block at a time, to which the norms between them belong. Of
    others a layer is a child of the module, of the outermost that has several.
    """
    inner: Any = getattr(backbone, "network", backbone)
    if hasattr(inner, "group_matcher"):
        depths = Extra("timm.models", "timm").group_parameters(inner, inner.group_matcher(coarse=False), reverse=True)
        found: list[list[nn.Parameter]] = [[] for _ in range(max(depths.values()) + 1)]
        for name, parameter in inner.named_parameters():
            found[depths[name]].append(parameter)
        return found
    while len(parts := [each for each in inner.children() if next(each.parameters(), None) is not None]) == 1:
        (inner,) = parts
    return [list(each.parameters()) for each in parts or [inner]]
