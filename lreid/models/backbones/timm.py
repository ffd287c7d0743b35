"""Networks of timm, such as ``timm:vit_base_patch16_clip_224.openai``, built for the image size of the run."""

import logging
import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from lreid.errors import ArgumentError, nearest_name, raise_if_out_of_memory, short_reason
from lreid.models.backbones import not_downloaded
from lreid.models.parts import evaluating
from lreid.utils.extras import Extra

POOLS = {"class": "token", "patches": "avg"}  # values of MODEL.POOLING, and timm's names for them


class TimmFeatures(nn.Module):
    """A network of timm without its classifier; it returns maps, or vectors if the network consists of tokens.

    Convolutional networks and Swin return maps. Networks of tokens (such as ViT) pool their tokens after the last norm.
    The pooled vector is the class token, the mean of the patch tokens, or the result of timm's own pooling.

    Args:
        network: a network of timm with ``num_classes=0``; if it has position embeddings, it must be built for the input
            size.
        size: height and width of the images; the constructor passes a blank image of this size through the network as a
            test.
        title: name of the network in error messages.

    Raises:
        ArgumentError: the network does not support images of this size.

    Attributes:
        dim: length of the features.
    """

    inner = "network."

    def __init__(self, network: nn.Module, size: tuple[int, int] = (256, 128), title: str = "") -> None:
        super().__init__()
        self.network: Any = network
        forward_features: Any = network.forward_features
        self.title = title or type(network).__name__
        self._check_patches(size)
        blank = torch.zeros(1, 3, *size)
        self.stages: list[list[nn.Module]] = []  # blocks by map size, if known
        with torch.no_grad(), evaluating(network):
            try:
                outputs = forward_features(blank)
                self.gives_maps = isinstance(outputs, Tensor) and outputs.ndim == 4
                self.dim = self(blank).shape[1]
            except (AssertionError, RuntimeError, ValueError) as error:
                sides = f"is {size[0]}, with a width of {size[1]}"
                fault = f"{sides}; {self.title} does not support this size: {short_reason(error)}"
                raise ArgumentError("height", fault) from None

    def _check_patches(self, size: tuple[int, int]) -> None:
        embedding = getattr(self.network, "patch_embed", None)
        strides = getattr(getattr(embedding, "proj", None), "stride", None)
        sides = getattr(embedding, "patch_size", None)
        sides = (sides, sides) if isinstance(sides, int) else sides
        if strides is None or sides is None or tuple(strides) != tuple(sides):
            return  # no patches, or overlapping ones
        for argument, pixels, side in zip(("height", "width"), size, sides, strict=True):
            if pixels % side:
                near = [str(each) for each in (pixels // side * side, (pixels // side + 1) * side) if each]
                raise ArgumentError(
                    argument,
                    f"is {pixels}; {self.title} cuts images into patches of {sides[0]} x {sides[1]} pixels, "
                    f"so use {' or '.join(near)}",
                )

    def forward(self, images: Tensor) -> Tensor:
        """Compute maps ``(B, dim, h, w)``, or vectors ``(B, dim)`` if the network consists of tokens."""
        outputs = self.network.forward_features(images)
        if not self.gives_maps:
            return self.network.forward_head(outputs, pre_logits=True)
        return outputs.permute(0, 3, 1, 2) if getattr(self.network, "output_fmt", "") == "NHWC" else outputs

    def pool_by(self, pooling: str) -> None:
        """Make the network return the class token (``class``) or the mean of all patch tokens (``patches``).

        Raises:
            ArgumentError: the network has no class token or no patch tokens.
        """
        has_class = getattr(self.network, "num_prefix_tokens", 0) > 0
        if self.gives_maps or not hasattr(self.network, "num_prefix_tokens") or (pooling == "class" and not has_class):
            missing = "class token" if pooling == "class" else "tokens of patches"
            raise ArgumentError("pooling", f"is {pooling}, but {self.title} has no {missing}; use avg")
        self.network.reset_classifier(0, POOLS[pooling])

    def adapted(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Adapt a state dict of timm: resample the position embeddings to the input size of this network.

        State dicts of other sources that timm supports, such as OpenAI's, are converted. If the sides of the grid of
        position embeddings are unknown, this method assumes a square grid.
        """
        adapt = getattr(sys.modules[type(self.network).__module__], "checkpoint_filter_fn", None)
        return state if adapt is None else adapt(state, self.network)


def build(name: str, *, hub: bool, size: tuple[int, int]) -> nn.Module:
    """Build a network of timm by its name in timm, with random weights or weights from timm's hub.

    EfficientNets and MobileNetV2 are built without their last stride, like lreid's ResNets.

    Args:
        name: name of the network, optionally followed by a dot and a name of weights, as in
            ``vit_base_patch16_clip_224.openai``.
        hub: whether to load the weights from timm's hub.

    Raises:
        ArgumentError: timm has no such network or weights, a download fails, or the network does not support the size.
        InputError: timm is not installed.
    """
    timm = _checked(name)
    cfg = timm.get_pretrained_cfg(name)
    # Networks with a fixed input size are built for the size of the images.
    options: dict[str, Any] = {"img_size": size} if cfg is not None and cfg.fixed_input_size else {}

    def made(pretrained: bool) -> Any:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, **options)

    try:
        network = made(False)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise_if_out_of_memory(error, f"timm:{name}")
        raise ArgumentError(
            "backbone",
            f"timm:{name} cannot be built for images of {size[0]} x {size[1]}: {short_reason(error)}; "
            "use another size or network",
        ) from None
    stages = _without_last_stride(network)
    features = TimmFeatures(network, size, f"timm:{name}")
    features.stages = stages
    if hub:
        for name_of in ("timm", "huggingface_hub"):  # so that only lreid's one-line error appears
            logging.getLogger(name_of).setLevel(logging.ERROR)
        try:
            network.load_state_dict(made(True).state_dict())
        except Exception as error:  # a download may raise anything
            raise_if_out_of_memory(error, f"timm:{name}")
            raise not_downloaded("hub", error, _address_of(name, cfg)) from None
    return features


def normalisation(name: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the mean and standard deviation of RGB in [0, 1] with which weights were trained; None if unknown.

    Raises:
        ArgumentError: timm has no such network or weights.
    """
    cfg = _checked(name).get_pretrained_cfg(name)
    return None if cfg is None else (tuple(cfg.mean), tuple(cfg.std))


def _checked(name: str) -> ModuleType:
    """Import timm, and check that timm has a network of the given name."""
    timm: ModuleType = Extra("timm", "timm").load()
    kind, dot, _ = name.partition(".")
    if not timm.is_model(kind):
        nearest = nearest_name(kind, timm.list_models())
        raise ArgumentError("backbone", f"timm:{name} is not a network of timm; the nearest name is timm:{nearest}")
    tagged = timm.list_pretrained(f"{kind}.*")
    if dot and name not in tagged:
        nearest = nearest_name(name, tagged or [kind])
        raise ArgumentError("backbone", f"timm:{name}: timm has no such weights; the nearest name is timm:{nearest}")
    return timm


def _without_last_stride(network: Any) -> list[list[nn.Module]]:
    """Remove the last stride of an EfficientNet; return the blocks from the first stride on, by map size."""
    stages: list[list[nn.Module]] = []
    if type(network).__name__ != "EfficientNet":
        return stages
    strided: list[Any] = []
    for blocks in network.blocks:
        if layers := [each for each in blocks.modules() if getattr(each, "stride", None) == (2, 2)]:
            stages.append([])
            strided = layers
        for stage in stages[-1:]:
            stage += blocks
    for each in strided:  # layers of the last blocks with a stride
        each.stride = (1, 1)
    return stages


def _address_of(name: str, cfg: Any) -> str:
    """Return the address of weights that timm knows, for an error message."""
    repository = getattr(cfg, "hf_hub_id", None)
    if not repository:
        return getattr(cfg, "url", None) or f"weights for {name}, of which timm knows none,"
    file = cfg.hf_hub_filename or "model.safetensors"
    return f"https://huggingface.co/{repository}/resolve/main/{file}"


BACKBONES = {"timm:": build}
