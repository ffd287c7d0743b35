"""Adapters: small trainable modules in the attention blocks of a frozen transformer."""

import importlib
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from lreid.errors import ArgumentError, require
from lreid.models.parts import evaluating

KINDS = ("none", "lora", "bottleneck", "prompts")


class Place(NamedTuple):
    """An attention block that receives an adapter.

    Attributes:
        name: name of the block within the network.
        linears: linear layers that the block calls, by full name, in the order of the calls.
    """

    name: str
    linears: dict[str, nn.Linear]


def add_adapter(network: nn.Module, kind: str, size: int, layers: int, image: torch.Tensor, title: str) -> None:
    """Freeze a network and add an adapter to its last attention blocks.

    A new adapter does not change features, because its output is multiplied by weights that are zero at first.

    Args:
        network: the backbone, a transformer (of timm, for instance).
        kind: ``lora``, ``bottleneck`` or ``prompts``; each kind is a module of this package.
        size: rank of LoRA, width of the bottleneck, or number of prompts per block; 1 or more.
        layers: number of blocks that get an adapter, counted from the last block; 0 means all blocks.
        image: a normalised image (1, 3, H, W); one forward pass with this image finds the linear layers.
        title: name of the network in error messages.

    Raises:
        ArgumentError: the kind is unknown, the network has fewer than ``layers`` attention blocks or none, or the size
            exceeds the width of the network.
        InputError: peft is not installed.
    """
    require(kind in KINDS[1:], "adapter", kind, f"one of {', '.join(KINDS)}")
    require(size >= 1, "adapter_size", size, "1 or more")
    blocks = [name for name, block in network.named_modules() if _attends(block)]
    if not blocks:
        raise ArgumentError("adapter", f"is {kind}, but {title} has no attention; use a transformer of timm, or none")
    most = len(blocks)
    require(0 <= layers <= most, "adapter_layers", layers, f"from 0 to {most}, the attention blocks of {title}")
    places = _places(network, blocks[-layers:], image)
    network.requires_grad_(False)
    importlib.import_module(f"{__name__}.{kind}").insert(network, places, size)


def require_narrow(size: int, places: list[Place]) -> None:
    """Check that the rank or the width of an adapter is at most the width of the network's widest layer.

    Raises:
        ArgumentError: ``size`` is larger than the width of every layer.
    """
    linears = [each for place in places for each in place.linears.values()]
    width = max((min(each.in_features, each.out_features) for each in linears), default=0)
    require(size <= width, "adapter_size", size, f"at most {width}, the width of the network")


def _attends(block: nn.Module) -> bool:
    attention = getattr(block, "attn", None)
    return isinstance(attention, nn.Module) and any(isinstance(each, nn.Linear) for each in attention.modules())


def _places(network: nn.Module, blocks: list[str], image: torch.Tensor) -> list[Place]:
    """Find the linear layers that each block calls; some attention modules use a layer's weight without calling it."""
    places, hooks = [Place(block, {}) for block in blocks], []

    def note(linears: dict[str, nn.Linear], name: str, layer: nn.Linear, *_: object) -> None:
        linears[name] = layer

    for place in places:
        for name, each in network.get_submodule(place.name).named_modules():
            if isinstance(each, nn.Linear):
                hooks.append(each.register_forward_hook(partial(note, place.linears, f"{place.name}.{name}")))
    with torch.no_grad(), evaluating(network):
        network(image)
    for hook in hooks:
        hook.remove()
    return places
