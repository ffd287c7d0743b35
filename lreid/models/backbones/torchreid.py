"""Networks of torchreid, such as ``torchreid:osnet_x1_0``."""

import warnings

import torch
from torch import Tensor, nn

from lreid.errors import ArgumentError, raise_if_out_of_memory, short_reason
from lreid.models.backbones import not_downloaded
from lreid.utils.extras import Extra


class TorchreidFeatures(nn.Module):
    """A network of torchreid that returns only features, without logits."""

    inner = "network."
    dim: int

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @property
    def stages(self) -> list[list[nn.Module]]:
        """The stages of an OSNet, without the transitions between them; other networks have no stages here."""
        layers = [getattr(self.network, name, nn.Identity()) for name in ("conv2", "conv3", "conv4")]
        stages = [[block for block in layer.children() if hasattr(block, "conv2a")] for layer in layers]
        return stages if all(stages) else []

    def forward(self, images: Tensor) -> Tensor:
        """Compute features ``(B, dim)``; logits, which some networks also return in training, are dropped."""
        output = self.network(images)
        return output[1] if isinstance(output, tuple) else output  # (B, dim)


def build(name: str, *, imagenet: bool) -> nn.Module:
    """Build a network of torchreid by its name in torchreid; ``imagenet`` loads torchreid's weights for it.

    Raises:
        ArgumentError: torchreid has no such network, or the weights cannot be downloaded.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchreid warns that its Cython code is not compiled
        models = Extra("torchreid", "torchreid").models
    try:
        # With the triplet loss, the network returns (logits, features) in training and otherwise features.
        network = models.build_model(name, num_classes=1, loss="triplet", pretrained=imagenet)
    except KeyError as error:
        raise ArgumentError("backbone", f"torchreid:{name}: {short_reason(error)}") from None
    except Exception as error:  # a download may raise anything
        raise_if_out_of_memory(error, f"torchreid:{name}")
        if not imagenet:
            raise
        address = vars(models)["__model_factory"][name].__globals__.get("pretrained_urls", {}).get(name, "the weights")
        raise not_downloaded("imagenet", error, address) from None
    adapter = TorchreidFeatures(network)
    with torch.no_grad():
        adapter.dim = adapter.eval()(torch.zeros(1, 3, 256, 128)).shape[1]
    return adapter.train()


BACKBONES = {"torchreid:": build}
