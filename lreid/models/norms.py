"""Instance normalisation for networks with BatchNorm (``MODEL.NORM``): in blocks (IBN-Net), the stem or the input.

On images of a new domain, a network loses accuracy mainly because colours, contrast and light differ. Colours, contrast
and light determine the mean and the standard deviation of each channel of an image. An instance norm removes the mean
and standard deviation of each channel, and with them some information about people. To keep more information about
people, IBN-Net (Pan et al., ECCV 2018) normalises only half of the channels, or the output of some blocks. White
balance removes only the colour cast of an image and keeps light and contrast.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lreid.errors import ArgumentError, require
from lreid.utils.rules import NORMS


class InstanceNorm(nn.InstanceNorm2d):
    """An instance norm that replaces a BatchNorm; it normalises every channel of every image separately.

    Args:
        batch: the BatchNorm to replace; its weights, its biases and (for norms of timm) its activation are copied.
        channels: number of channels to normalise, counted from the first; 0 means all channels.
    """

    def __init__(self, batch: nn.BatchNorm2d, channels: int = 0) -> None:
        channels = channels or batch.num_features
        super().__init__(channels, batch.eps, affine=True)
        self.load_state_dict({"weight": batch.weight[:channels], "bias": batch.bias[:channels]})
        self.act = getattr(batch, "act", nn.Identity())

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise maps (B, C, h, w)."""
        return self.act(super().forward(maps))


class HalfInstanceNorm(nn.Module):
    """IBN-a: an instance norm for the first half of the channels, and a BatchNorm for the second half.

    Source: class ``IBN`` of IBN-Net's official code; the tensors have the same names as in that class.

    Args:
        batch: the BatchNorm to replace; its weights, biases and statistics are copied.
    """

    def __init__(self, batch: nn.BatchNorm2d) -> None:
        super().__init__()
        half = batch.num_features // 2
        self.IN = InstanceNorm(batch, half)
        self.BN = nn.BatchNorm2d(batch.num_features - half, batch.eps, batch.momentum)
        state = {name: value for name, value in batch.state_dict().items() if name in self.BN.state_dict()}
        self.BN.load_state_dict({name: value[half:] if value.ndim else value for name, value in state.items()})
        self.act = self.IN.act

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise maps (B, C, h, w)."""
        half = self.IN.num_features
        first, second = maps[:, :half].contiguous(), maps[:, half:].contiguous()
        return torch.cat([self.IN(first), self.act(self.BN(second))], 1)

    def merged(self) -> nn.Module:
        """Return a module with the same outputs for inference; on a CPU, it is several times as fast as this module."""
        return _MergedHalfNorm(self)


class _MergedHalfNorm(nn.Module):
    """A :class:`HalfInstanceNorm` as one multiplication and one addition per channel, without copying maps."""

    def __init__(self, norm: HalfInstanceNorm) -> None:
        super().__init__()
        batch, self.instance, self.act = norm.BN, norm.IN, norm.act
        assert batch.running_mean is not None and batch.running_var is not None
        self.scale = batch.weight * (batch.running_var + batch.eps).rsqrt()  # (C - half,)
        self.shift = batch.bias - batch.running_mean * self.scale

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise maps (B, C, h, w)."""
        half, count = self.instance.num_features, len(maps)
        first = maps[:, :half]
        mean, square = maps.mean((2, 3))[:, :half], (first * first).mean((2, 3))  # (B, half)
        scale = self.instance.weight * (square - mean * mean + self.instance.eps).rsqrt()
        shift = self.instance.bias - mean * scale
        scale = torch.cat([scale, self.scale.expand(count, -1)], 1)[..., None, None]  # (B, C, 1, 1)
        shift = torch.cat([shift, self.shift.expand(count, -1)], 1)[..., None, None]
        scaled = torch.addcmul(shift, maps, scale, out=maps)  # in place, which saves much of the time
        return self.act(scaled.view_as(maps))  # a view, so that merging does not mistake it for a convolution's output


def put_norms(network: nn.Module, norm: str) -> None:
    """Add instance norms to a backbone at the places that IBN-Net uses in a ResNet.

    * ``ibn_a``: :class:`HalfInstanceNorm` replaces the first norm of every block, except in the last stage.
    * ``ibn_b``: :class:`InstanceNorm` replaces the norm of the stem. The last block of each of the first two stages
      gets a new instance norm, between its addition and its ReLU. The new norms have weight 1 and bias 0.
    * ``+stem``: :class:`InstanceNorm` replaces the norm of the stem.
    * ``+input``: each channel of an input image is standardised to mean 0 and standard deviation 1.
    * ``+grey``: white balance of input images, which :func:`balance_white` adds instead of this function.

    Args:
        network: the backbone, which this function changes in place. The attribute ``stages`` of the backbone lists the
            residual blocks of each stage.
        norm: one of :data:`CHOICES`; with ``batch``, the network does not change.

    Raises:
        ArgumentError: ``norm`` is unknown, or the network has no BatchNorm or no attribute ``stages``.
    """
    require(norm in NORMS, "norm", norm, f"{', '.join(NORMS[:-1])} or {NORMS[-1]}")
    kind, *more = norm.split("+")
    stages: list[list[nn.Module]] = [list(stage) for stage in getattr(network, "stages", ())]
    if (kind != "batch" or "stem" in more) and not any(isinstance(each, nn.BatchNorm2d) for each in network.modules()):
        raise ArgumentError("norm", f"is {norm}, but this backbone has no BatchNorm; use batch or batch+input")
    if kind != "batch" and not stages:
        raise ArgumentError("norm", f"is {norm}; the backbone names no blocks: use batch, batch+stem or batch+input")
    if kind == "ibn_b" or "stem" in more:
        _replace_first(network, InstanceNorm)
    if kind == "ibn_a":
        for block in [block for stage in stages[:-1] for block in stage]:
            _replace_first(block, HalfInstanceNorm)
    if kind == "ibn_b":
        for stage in stages[:2]:
            _norm_sum(stage[-1])
    if "input" in more:
        network.register_forward_pre_hook(_standardise)


def input_norm(norm: str) -> str:
    """Return the part of ``norm`` that changes input images: ``input``, ``grey``, or an empty string."""
    return next((part for part in norm.split("+") if part in ("input", "grey")), "")


def balance_white(network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
    """Add white balance to the input of a network (``+grey``).

    White balance scales the red, green and blue channels to the same mean, as if the mean colour of every scene were
    grey. The result of white balance does not depend on the camera's settings or the colour of the light. A black
    channel stays black.

    Source: the grey-world assumption, Buchsbaum, "A Spatial Processor Model for Object Colour Perception", 1980.

    Args:
        network: network for normalised images (B, 3, H, W), which this function changes in place.
        mean, std: mean and standard deviation with which input images in [0, 1] are normalised.
    """
    black = [-each / deviation for each, deviation in zip(mean, std, strict=True)]
    network.register_forward_pre_hook(partial(_balance, black=black, std=list(std)))


def _replace_first(module: nn.Module, kind: Callable[[nn.BatchNorm2d], nn.Module]) -> None:
    """Replace the first BatchNorm of a module by the norm that ``kind`` builds."""
    name, batch = next((name, each) for name, each in module.named_modules() if isinstance(each, nn.BatchNorm2d))
    module.set_submodule(name, kind(batch).to(batch.weight).train(batch.training))


def _norm_sum(block: Any) -> None:
    """Add an instance norm after the addition at the end of a residual block."""
    from torchvision.models.resnet import BasicBlock, Bottleneck  # slow to load, as all of torchvision

    last = [each for each in block.modules() if isinstance(each, nn.BatchNorm2d)][-1]  # has the width of the sum
    block.IN = nn.InstanceNorm2d(last.num_features, affine=True).to(last.weight)
    if isinstance(block, (BasicBlock, Bottleneck)):
        block.forward = MethodType(_residual, block)
    elif not hasattr(block, "conv2a"):  # the blocks of an OSNet have this norm already
        block.register_forward_hook(_norm_output)  # MobileNet: no ReLU after the sum


def _residual(block: Any, maps: Tensor) -> Tensor:
    """Compute the output of a torchvision block that has a norm between the addition and the ReLU."""
    sums = block.bn2(block.conv2(block.relu(block.bn1(block.conv1(maps)))))
    if hasattr(block, "conv3"):
        sums = block.bn3(block.conv3(block.relu(sums)))
    sums = sums + (maps if block.downsample is None else block.downsample(maps))
    return block.relu(block.IN(sums))


# Hooks are functions of the module, so that networks can be pickled.
def _norm_output(block: Any, _: tuple[Tensor], sums: Tensor) -> Tensor:
    return block.IN(sums)


def _standardise(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return functional.instance_norm(inputs[0])


def _balance(_: nn.Module, inputs: tuple[Tensor], *, black: list[float], std: list[float]) -> Tensor:
    zero, unit = (inputs[0].new_tensor(each).view(1, 3, 1, 1) for each in (black, std))
    light = inputs[0] - zero  # (B, 3, H, W), values in [0, 1] over std
    means = unit * light.mean((2, 3), keepdim=True)  # (B, 3, 1, 1)
    return light * (means.mean(1, keepdim=True) / means.clamp(min=1 / 255)) + zero
