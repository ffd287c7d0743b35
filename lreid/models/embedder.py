"""The network that turns an image into a feature vector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.data.images import fit_image, read_image
from lreid.devices import to_device
from lreid.errors import ArgumentError, InputError, refuse_out_of_memory, require
from lreid.float32 import full_precision, tf32
from lreid.models.backbones import build_backbone, give_norms, normalisation
from lreid.models.parts import bn_neck, evaluating, layers_of
from lreid.progress import images_done

if TYPE_CHECKING:
    from typing_extensions import Self

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # means and deviations of its RGB values in [0, 1]
POOLINGS = ("avg", "gem", "class", "patches")


class Embedder(nn.Module):
    """A backbone with global pooling, and a neck on request; knows the size and the normalisation of its input.

    Args:
        backbone: name, see :func:`lreid.models.build_backbone`; or a custom network that maps (B, 3, H, W) float
            images to (B, dim, h, w) maps or (B, dim) vectors.
        weights: ``none``, ``imagenet``, ``hub``, ``zoo:NAME``, ``package:NAME`` or a file; of a custom network
            those that it has are kept.
        dim: width of the features of a custom network, if it has no attribute ``dim``.
        height, width: input size in pixels.
        mean, std: of RGB values in [0, 1], three each; None is that of the weights of a package or of timm's hub, else
            ImageNet's.
        neck: normalise features by a BatchNorm without shift before they are compared (BoT's neck).
        pooling: of maps to vectors, ``avg`` or ``gem``, the generalised mean ``(mean x^3)^(1/3)`` of values clamped at
            1e-6 (GeM: Radenović et al., TPAMI 2019, its exponent fixed). Of a network of tokens that gives vectors
            ``class`` is its class token and ``patches`` the mean of its patches; by the other two it pools as it was
            made to.
        norm: where the backbone has instance norms, see :func:`lreid.models.norms.put_norms`, and whether it balances
            the white balance of images, see :func:`lreid.models.norms.balance_white`.
        scale: features are multiplied by it, above 0. Cosines do not notice; losses of distances do, whose margins mean
            little where features are long.

    Raises:
        ArgumentError: the backbone is unknown, tells no ``dim`` or cannot have these norms or tokens, or weights cannot
            be had.
        InputError: weights that do not fit.

    Attributes:
        dim: width of the features.
        precision: what the backbone computes in, ``torch.bfloat16`` or ``torch.float16`` by autocast, or ``"tf32"``;
            None is float32, whatever torch's settings for it are. Features are float32 either way, so that losses are.
        frozen_norms: BatchNorms of the layers that :meth:`freeze` leaves as they are.
    """

    dim: int
    mean: Tensor  # (1, 3, 1, 1), of RGB values in [0, 255]
    std: Tensor

    def __init__(
        self,
        backbone: str | nn.Module = "resnet50",
        weights: str = "none",
        *,
        dim: int | None = None,
        height: int = 256,
        width: int = 128,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        neck: bool = False,
        pooling: str = "avg",
        norm: str = "batch",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        require(pooling in POOLINGS, "pooling", pooling, " or ".join(POOLINGS))
        require(scale > 0, "scale", scale, "above 0")
        self.name = backbone if isinstance(backbone, str) else type(backbone).__name__
        if isinstance(backbone, str):
            backbone = build_backbone(backbone, weights, norm, size=(height, width))
        elif weights == "none":
            give_norms(backbone, norm)
        else:
            from lreid.models.weights import load_weights

            load_weights(backbone, weights, norm)
        dim = dim or getattr(backbone, "dim", None)
        if not isinstance(dim, int):
            raise ArgumentError("dim", f"is not given, and {self.name} has no attribute dim; give one of them")
        self.backbone, self.dim, self.height, self.width = backbone, dim, height, width
        self.pooling, self.norm, self.scale = pooling, norm, scale
        if pooling in ("class", "patches"):
            pool_by: Any = getattr(backbone, "pool_by", None)
            if pool_by is None:
                raise ArgumentError("pooling", f"is {pooling}, but {self.name} has no tokens; take avg")
            pool_by(pooling)
        self.frozen_norms: list[nn.Module] = []
        self.precision: torch.dtype | Literal["tf32"] | None = None
        self.neck: nn.Module = bn_neck(self.dim) if neck else nn.Identity()
        own_mean, own_std = normalisation(self.name, weights) or IMAGENET
        mean, std = mean or own_mean, std or own_std
        if norm.endswith("+grey"):
            from lreid.models.norms import balance_white

            balance_white(self.backbone, mean, std)
        self.register_buffer("mean", 255 * torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def __repr__(self) -> str:
        parameters = sum(each.numel() for each in self.parameters()) / 1e6
        sizes = f"{self.height} x {self.width} pixels to {self.dim} numbers, {parameters:.1f} M parameters"
        return f"{type(self).__name__}({self.name}, {sizes}, {self.mean.device})"

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, dim) of normalised images (B, 3, H, W): pooled and raw, not of unit length."""
        return self.pool(self._outputs(images))  # (B, dim)

    def maps(self, images: Tensor) -> Tensor:
        """The last feature maps (B, dim, h, w) of normalised images (B, 3, H, W), float32.

        Raises:
            ArgumentError: the backbone gives vectors.
        """
        outputs = self._outputs(images)
        if outputs.ndim != 4:
            raise ArgumentError(
                "backbone",
                f"{self.name} gives vectors, and the method needs feature maps; take a convolutional network",
            )
        return outputs

    def map_size(self) -> tuple[int, int]:
        """Height and width of :meth:`maps`, seen on a blank image.

        Raises:
            ArgumentError: the backbone gives vectors.
        """
        with torch.no_grad(), evaluating(self):
            maps = self.maps(torch.zeros(1, 3, self.height, self.width, device=self.mean.device))
        return maps.shape[2], maps.shape[3]

    def freeze(self, layers: int) -> None:
        """Leaves the first so many layers of the backbone as they are, with the statistics of their BatchNorms.

        Raises:
            ArgumentError: there are not so many, see :func:`~lreid.models.parts.layers_of`.
        """
        found = layers_of(self.backbone)
        require(layers <= len(found), "frozen_layers", layers, f"at most {len(found)}, the layers of {self.name}")
        frozen = {id(each) for layer in found[:layers] for each in layer}
        for parameter in self.backbone.parameters():
            if id(parameter) in frozen:
                parameter.requires_grad_(False)
        norms = [each for each in self.backbone.modules() if isinstance(each, _BatchNorm)]
        self.frozen_norms = [each for each in norms if id(each.weight) in frozen]
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """As of every module; what is frozen stays in evaluation mode."""
        super().train(mode)
        for norm in self.frozen_norms:
            norm.eval()
        return self

    def pool(self, outputs: Tensor) -> Tensor:
        """Features (B, dim) of maps (B, dim, h, w); vectors stay."""
        return outputs if outputs.ndim != 4 else pooled(outputs, self.pooling)

    def _outputs(self, images: Tensor) -> Tensor:
        if isinstance(self.precision, torch.dtype):
            with torch.autocast(images.device.type, self.precision):
                outputs = self.backbone(images).float()
        else:
            with full_precision() if self.precision is None else tf32():
                outputs = self.backbone(images)
        return outputs if self.scale == 1 else self.scale * outputs

    def normalise(self, images: Tensor) -> Tensor:
        """Float images (B, 3, H, W), ready for :meth:`forward`, from uint8 RGB images (B, H, W, 3)."""
        images = to_device(images, self.mean.device).permute(0, 3, 1, 2).float()
        return (images - self.mean) / self.std  # (B, 3, H, W)

    @torch.inference_mode()
    def extract(
        self,
        images: Sequence[str | Path | np.ndarray] | np.ndarray | Tensor,
        *,
        flip: bool = False,
        batch_size: int = 128,
    ) -> np.ndarray:
        """Features of images, in evaluation mode and float32; leaves mode and precision as they were.

        A terminal shows a progress bar if it takes more than two seconds.

        Args:
            images: n images: paths, uint8 RGB arrays (H, W, 3) of any size, one array or tensor
                (n, H, W, 3) of uint8, or a float tensor (n, 3, H, W) that is normalised already.
            flip: add the features of the flipped images, as DwoPP's evaluation does.
            batch_size: images a forward pass.

        Returns:
            (n, dim) float32: pooled, and through the neck where there is one. Compare them by cosine similarity.

        Raises:
            InputError: a file is missing or cannot be read, the images are of another form than these, or one has no
                pixels or, as a float tensor, values that are not finite or that overflow float32 in the network; its
                position is named.
        """
        if isinstance(images, (str, Path)):
            raise InputError(f"{images}: a single path; give a list of paths")
        precision, self.precision = self.precision, None
        try:
            with evaluating(self), images_done(len(images), "extracting") as bar:
                rows = []
                for start in range(0, len(images), batch_size):
                    batch = images[start : start + batch_size]
                    _require_pixels(batch, start)
                    rows.append(_finite(self._features(batch, flip).float().cpu().numpy(), start))
                    bar.update(len(rows[-1]))
        except Exception as error:
            refuse_out_of_memory(error, f"batch_size={batch_size}", "lower it, or close other programs")
            raise
        finally:
            self.precision = precision
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def ready(self, images: Sequence[str | Path | np.ndarray] | np.ndarray | Tensor) -> Tensor:
        """Images as of :meth:`extract`, ready for :meth:`forward`: float (B, 3, H, W), where the model is.

        Raises:
            InputError: a file is missing or cannot be read, or the images are of another form.
        """
        if not (isinstance(images, Tensor) and images.is_floating_point()):
            images = self.normalise(self._decoded(images))
        elif images.ndim != 4 or images.shape[1] != 3:
            raise _misfit(images)
        return to_device(images, self.mean.device).to(self.mean.dtype)

    def _features(self, images: Sequence[str | Path | np.ndarray] | np.ndarray | Tensor, flip: bool) -> Tensor:
        batch = self.ready(images)  # (B, 3, H, W)
        features = self.neck(self(batch))  # (B, dim)
        return features + self.neck(self(batch.flip(-1))) if flip else features

    def _decoded(self, images: Sequence[str | Path | np.ndarray] | np.ndarray | Tensor) -> Tensor:
        """uint8 images (B, H, W, 3) of the input size."""
        size = {"height": self.height, "width": self.width}
        if isinstance(images, (np.ndarray, Tensor)) and images.shape[1:] == (self.height, self.width, 3):
            tensor = images if isinstance(images, Tensor) else torch.from_numpy(images.copy())
            if tensor.dtype == torch.uint8:
                return tensor
        return torch.from_numpy(
            np.stack(
                [
                    read_image(str(image), **size) if isinstance(image, (str, Path)) else fit_image(_rgb(image), **size)
                    for image in images
                ]
            )
        )


def pooled(maps: Tensor, pooling: str) -> Tensor:
    """Means over the positions of maps, (B, dim, h, w) to (B, dim), plain or generalised, see :class:`Embedder`."""
    if pooling == "gem":
        return maps.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)
    return maps.mean((2, 3))


def _require_pixels(images: Sequence[Any] | np.ndarray | Tensor, first: int) -> None:
    """Refuses what a network would make a feature of all the same: images without pixels, or of NaN and infinities.

    Args:
        images: of :meth:`Embedder.extract`, at least one.
        first: position of the first one among all.
    """
    if isinstance(images, (np.ndarray, Tensor)):
        empty = [0] if 0 in images.shape else []
    else:
        empty = [index for index, image in enumerate(images) if 0 in getattr(image, "shape", ())]
    if empty:
        raise ArgumentError("images", f"hold one without pixels at position {first + empty[0]}; leave it out")
    if isinstance(images, Tensor) and images.is_floating_point():
        broken = (~images.isfinite().flatten(1).all(1)).nonzero()
        if len(broken):
            raise ArgumentError(
                "images", f"hold NaN or infinite values at position {first + int(broken[0])}; leave that image out"
            )


def _finite(features: np.ndarray, first: int) -> np.ndarray:
    """Features (B, dim), refused where one is not finite: it would be as near to one image as to any other.

    Args:
        features: of a batch.
        first: position of its first image among all.
    """
    broken = np.flatnonzero(~np.isfinite(features).all(1))
    if len(broken):
        raise ArgumentError(
            "images", f"give NaN or infinite features at position {first + broken[0]}; check its values and the weights"
        )
    return features


def _rgb(image: Any) -> np.ndarray:
    """An image as an array, which must be (H, W, 3) uint8: values in [0, 1] would all be taken for black."""
    array = np.asarray(image.cpu() if isinstance(image, Tensor) else image)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise _misfit(array)
    return array


def _misfit(came: np.ndarray | Tensor) -> ArgumentError:
    return ArgumentError(
        "images",
        f"hold one of shape {tuple(came.shape)} and type {came.dtype}; give paths, RGB values of uint8 in "
        "(H, W, 3) each, or a normalised float tensor (n, 3, H, W)",
    )
