"""LoRA: trainable low-rank matrices, which are added to the weights of linear layers and can be merged into them."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lreid.models.adapters import Place, require_narrow
from lreid.utils.extras import Extra


def insert(network: nn.Module, places: list[Place], rank: int) -> None:
    """With peft, add a matrix ``B A`` of the given rank to the weight of each linear layer that is wide enough.

    At first, ``A`` is random and ``B`` is zero. LoRA's scale is always 1, so that a suitable learning rate does not
    depend on the rank. A layer is wide enough if its numbers of inputs and outputs are both at least the rank.

    Source: Hu et al., ICLR 2022.
    """
    require_narrow(rank, places)
    linears = {name: each for place in places for name, each in place.linears.items()}
    wide = [name for name, each in linears.items() if min(each.in_features, each.out_features) >= rank]
    peft = Extra("peft", "adapters").load()
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=wide), network)


@torch.no_grad()
def merge(network: nn.Module) -> None:
    """Add every ``B A`` to the weight of its layer, then reset ``A`` to random values and ``B`` to zero."""
    for _, layer in _changed(network):
        layer.base_layer.weight += _change(layer)
        nn.init.kaiming_uniform_(layer.lora_A.default.weight, a=math.sqrt(5))  # as peft does
        nn.init.zeros_(layer.lora_B.default.weight)


@torch.no_grad()
def remove(network: nn.Module) -> None:
    """Merge every ``B A`` into the weight of its layer, and replace peft's layers by the original linear layers."""
    for name, layer in _changed(network):
        layer.base_layer.weight += _change(layer)
        network.set_submodule(name, layer.base_layer)


def _changed(network: nn.Module) -> Iterator[tuple[str, Any]]:
    yield from [(name, each) for name, each in network.named_modules() if hasattr(each, "lora_A")]


def _change(layer: Any) -> torch.Tensor:
    return layer.lora_B.default.weight @ layer.lora_A.default.weight
