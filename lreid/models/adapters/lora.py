"""LoRA: low-rank changes of linear layers, which can be merged into them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lreid.extras import Extra
from lreid.models.adapters import Place, require_narrow


def insert(network: nn.Module, places: list[Place], rank: int) -> None:
    """Adds ``B A`` of a rank to every linear layer of the places that is as wide as the rank, by peft.

    ``A`` is random and ``B`` zero. Its scale is 1, so that the rank does not change the learning rate.

    Source: Hu et al., ICLR 2022.
    """
    require_narrow(rank, places)
    linears = {name: each for place in places for name, each in place.linears.items()}
    wide = [name for name, each in linears.items() if min(each.in_features, each.out_features) >= rank]
    peft = Extra("peft", "adapters").load()
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=wide), network)


@torch.no_grad()
def merge(network: nn.Module) -> None:
    """Adds every ``B A`` to the weights of its layer, and starts again with a random ``A`` and ``B = 0``."""
    for _, layer in _changed(network):
        layer.base_layer.weight += _change(layer)
        nn.init.kaiming_uniform_(layer.lora_A.default.weight, a=math.sqrt(5))  # as peft does
        nn.init.zeros_(layer.lora_B.default.weight)


@torch.no_grad()
def remove(network: nn.Module) -> None:
    """Merges every ``B A`` and replaces its layer by a linear one, so that the network is as before :func:`insert`."""
    for name, layer in _changed(network):
        layer.base_layer.weight += _change(layer)
        network.set_submodule(name, layer.base_layer)


def _changed(network: nn.Module) -> Iterator[tuple[str, Any]]:
    yield from [(name, each) for name, each in network.named_modules() if hasattr(each, "lora_A")]


def _change(layer: Any) -> torch.Tensor:
    return layer.lora_B.default.weight @ layer.lora_A.default.weight
