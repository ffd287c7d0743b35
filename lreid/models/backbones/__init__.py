"""Build backbones by name; each backbone is defined by a file of this folder or registered by a script.

Every file defines ``BACKBONES``, a dictionary from names to builders. A name that ends with ``:``, such as ``timm:``,
denotes a family of networks. The builder of a family receives the part of the network's name after the colon. A builder
returns a module with an attribute ``dim``; it maps (B, 3, H, W) float images to (B, dim, h, w) maps or (B, dim)
vectors. lreid passes three arguments to builders that have them: ``imagenet`` (whether to load ImageNet weights),
``hub`` (whether to load weights from the library's hub) and ``size`` (height and width of the images).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from lreid.errors import ArgumentError, nearest_name, short_reason
from lreid.utils.extras import registrar

if TYPE_CHECKING:
    from lreid.models.weights import Weights

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])

SOURCES = {"imagenet": "ImageNet weights", "hub": "weights on a hub"}  # weights that builders load

_registered: dict[str, Callable[..., nn.Module]] = {}


def register_backbone(name: str) -> Callable[[Builder], Builder]:
    """Register a network from outside this package as a value of ``MODEL.BACKBONE`` in this process.

    A process that loads a checkpoint with a registered backbone must also register the backbone. Registering the same
    name again replaces the network, so a notebook cell may run twice.

    Args:
        name: name of the network, or of a family of networks if it ends with ``:``.

    Returns:
        A decorator for the builder of the network. The builder is a subclass of ``torch.nn.Module``, or a function that
        returns a module.

    Raises:
        ArgumentError: a backbone of this package or of a plug-in has the same name.
    """
    return registrar(_registered, name, "a backbone", own=_from_files(name) is not None)


@cache
def _builders(file: str) -> dict[str, Callable[..., nn.Module]]:
    return importlib.import_module(f"{__name__}.{file}").BACKBONES


def _from_files(name: str) -> Callable[..., nn.Module] | None:
    """Find the builder of a backbone, and import its file first, such as ``resnet.py`` for ``resnet50``."""
    files = sorted(_files(), key=lambda file: not name.startswith(file))
    return next((builders[name] for builders in map(_builders, files) if name in builders), None)


def _files() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def backbone_names() -> list[str]:
    """Return the names of all backbones and families, sorted."""
    return sorted({name for file in _files() for name in _builders(file)} | _registered.keys())


def build_backbone(
    name: str, weights: str | Weights = "none", norm: str = "batch", *, size: tuple[int, int] = (256, 128)
) -> nn.Module:
    """Build a backbone by its name.

    Args:
        name: one of the names below, or a registered name. ``resnet18``, ``resnet34``, ``resnet50`` and ``resnet101``
            are torchvision's networks without the last stride; ``resnet50_layer3`` also lacks the last stage, and
            ``resnet18_plain`` has all strides. ``resnet18_cifar``, ``resnet34_cifar``, ``resnet50_cifar``,
            ``resnet18_reduced`` and ``digits`` are for small images. Other names are ``small``, ``mobilenet_v2``,
            ``torchreid:NAME``, ``timm:NAME`` and ``open_clip:NAME``.
        weights: one of ``none`` (random), ``imagenet`` (torchvision's IMAGENET1K_V1, as in the papers, or torchreid's
            own), ``hub`` (the weights of timm or open_clip for the name), ``package:NAME`` (see
            :mod:`lreid.models.packages`), a file, or tensors in memory. A file is a checkpoint of a run, a
            ``.safetensors`` file, or a state dict of torchvision, torchreid, timm or open_clip. Necks and classifiers
            are ignored.
        norm: places of instance norms in the network, see :func:`lreid.models.norms.put_norms`.
        size: height and width of the images, for networks with a fixed input size.

    Returns:
        A module that maps (B, 3, H, W) float images to (B, dim, h, w) maps or (B, dim) vectors, and has an attribute
        ``dim``.

    Raises:
        ArgumentError: the name is unknown, the weights are not available, or the network does not support the norms or
            the image size.
        InputError: the weights in the file do not fit the network.
    """
    family, colon, rest = name.partition(":")
    builder = _registered.get(family + colon) or _from_files(family + colon)
    if builder is None:
        names = backbone_names()
        nearest = nearest_name(name, names)
        raise ArgumentError("backbone", f"is {name!r}; the nearest name is {nearest} (all: {', '.join(names)})")
    takes = inspect.signature(builder).parameters
    sources = [each for each in SOURCES if each in takes]
    if weights in SOURCES and weights not in sources:
        others = " or ".join([*sources, "none", "a file"])
        raise ArgumentError("weights", f"is {weights}, but {name} has no {SOURCES[weights]}; use {others}")
    options: dict[str, Any] = {each: weights == each for each in sources}
    if "size" in takes:
        options["size"] = size
    network = builder(*[rest] * bool(colon), **options)
    finish(network, weights, norm)
    return network


def finish(network: nn.Module, weights: str | Weights, norm: str) -> None:
    """Load weights that the builder of a network did not load, and add instance norms, each if there are any."""
    if weights not in ("none", *SOURCES):
        from lreid.models.weights import load_weights

        load_weights(network, weights, norm)
    elif norm != "batch":
        from lreid.models.norms import put_norms

        put_norms(network, norm)


def not_downloaded(weights: str, error: Exception, address: str) -> ArgumentError:
    """Create the error for weights that a builder cannot download; ``address`` says where to find them."""
    return ArgumentError(
        "weights",
        f"is {weights}, but they cannot be downloaded ({short_reason(error)}); download {address} elsewhere and name "
        "that file as the weights, or use none to start from random weights",
    )


def normalisation(backbone: str, weights: str | Weights) -> tuple[Sequence[float], Sequence[float]] | None:
    """Return the mean and standard deviation of RGB in [0, 1] that weights need; None for ImageNet's or unknown values.

    Raises:
        ArgumentError: timm has no network of this name.
        InputError: no package has this name.
    """
    if weights == "hub" and backbone.startswith("timm:"):
        return importlib.import_module(f"{__name__}.timm").normalisation(backbone.removeprefix("timm:"))
    if isinstance(weights, str) and weights.startswith("package:"):
        from lreid.models.packages import package_of

        package = package_of(weights)
        return package.mean, package.std
    return None
