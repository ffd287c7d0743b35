"""The network that turns an image into a feature vector."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.data.images import decoding_threads, images_done
from lreid.errors import ArgumentError, raise_if_out_of_memory, require
from lreid.models.backbones import build_backbone, finish, normalisation
from lreid.models.inputs import (
    IMAGENET,
    AnyImages,
    batches_of,
    finite,
    read_rgb,
    require_pixels,
    sequence_of,
    unsupported,
)
from lreid.models.parts import bn_neck, evaluating, layers_of
from lreid.utils.devices import Precision, full_precision, tf32, to_device

if TYPE_CHECKING:
    from lreid.models.weights import Weights

DECODED_AHEAD = 4  # maximum number of decoded batches that wait for the network
PIXELS = 4 * 256 * 128  # pixels per forward pass on a CPU; the activations of more pixels exceed its cache
AnyModule = TypeVar("AnyModule", bound=nn.Module)
POOLINGS = ("avg", "gem", "class", "patches")


class Embedder(nn.Module):
    """A network that maps images to feature vectors: a backbone, global pooling and, if wanted, a neck.

    Args:
        backbone: name of a backbone (see :func:`lreid.models.build_backbone`), or a custom network. A custom network
            maps (B, 3, H, W) float images to (B, dim, h, w) maps or (B, dim) vectors.
        weights: see :func:`lreid.models.build_backbone`; a custom network keeps its own weights with ``none``.
        dim: length of the features of a custom network without an attribute ``dim``.
        height, width: size of input images in pixels.
        mean, std: mean and standard deviation of RGB values in [0, 1], three each. With ``mean=None``, lreid uses the
            values with which the weights of a package or of timm's hub were trained, and ImageNet's values for other
            weights.
        neck: whether features pass through a BatchNorm without shift (BoT's neck). A module of
            :mod:`lreid.models.transforms` is also possible; its ``dim`` is then the length of the features.
        pooling: pooling of maps: ``avg`` (mean), or ``gem``, the generalised mean ``(mean x^3)^(1/3)`` of values
            clamped at 1e-6 (GeM: Radenović et al., TPAMI 2019, with a fixed exponent). For transformers that return
            vectors, ``class`` selects the class token, ``patches`` the mean of the patch tokens, and ``avg`` or ``gem``
            the transformer's own pooling.
        norm: places of instance norms in the backbone, see :func:`lreid.models.norms.put_norms`. With ``+grey``, the
            white balance of images is corrected, see :func:`lreid.models.norms.balance_white`.
        scale: factor by which features are multiplied, above 0. The scale matters for losses that use distances,
            because a margin has little effect on long features. The scale does not change cosine similarities.
        adapter: adapter in the frozen backbone: ``none``, ``lora``, ``bottleneck`` or ``prompts``, see
            :func:`lreid.models.adapters.add_adapter`.
        adapter_size: rank of LoRA, width of the bottleneck, or number of prompts per block.
        adapter_layers: number of blocks with an adapter, counted from the last block; 0 means all blocks.
        adapter_merge: whether :meth:`merge_adapter` merges LoRA into the backbone; otherwise that method does nothing.

    Raises:
        ArgumentError: the weights are not available; or the backbone is unknown, has no ``dim``, or does not support
            the norms, the pooling or the adapter.
        InputError: the weights do not match the network.

    Attributes:
        dim: length of the features.
        precision: precision of the backbone: ``torch.bfloat16`` or ``torch.float16`` (by autocast), ``"tf32"``, or
            None. None means float32, whatever torch's settings are. Features are always float32, and so are losses.
        inference: function that returns a faster network for feature extraction on the CPU, such as
            :class:`lreid.models.inference.Inference`; with None, this network itself is used. Keep ``inference`` None
            in training, because all forward passes must then give bitwise equal features.
        source: name or absolute path from which :func:`lreid.load_model` loaded the model; empty for models from
            elsewhere.
        frozen_norms: BatchNorm layers inside frozen layers of the backbone.
        images_trained: number of images so far in forward passes in training mode with gradients enabled.
    """

    dim: int
    mean: Tensor  # (1, 3, 1, 1), of RGB values in [0, 255]
    std: Tensor
    inference: Callable[[Embedder], Embedder] | None = None
    source: str = ""

    def __init__(
        self,
        backbone: str | nn.Module = "resnet50",
        weights: str | Weights = "none",
        *,
        dim: int | None = None,
        height: int = 256,
        width: int = 128,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        neck: bool | nn.Module = False,
        pooling: str = "avg",
        norm: str = "batch",
        scale: float = 1.0,
        adapter: str = "none",
        adapter_size: int = 8,
        adapter_layers: int = 0,
        adapter_merge: bool = False,
    ) -> None:
        super().__init__()
        require(pooling in POOLINGS, "pooling", pooling, " or ".join(POOLINGS))
        require(scale > 0, "scale", scale, "above 0")
        require(adapter == "lora" or not adapter_merge, "adapter_merge", True, f"False, as adapter is {adapter}")
        self.name = backbone if isinstance(backbone, str) else type(backbone).__name__
        if isinstance(backbone, str):
            backbone = build_backbone(backbone, weights, norm, size=(height, width))
        else:
            finish(backbone, weights, norm)
        dim = dim or getattr(backbone, "dim", None)
        if not isinstance(dim, int):
            raise ArgumentError("backbone", f"{self.name} has no attribute dim; set it to the number of channels")
        self.backbone, self.dim, self.height, self.width = backbone, dim, height, width
        self.pooling, self.norm, self.scale = pooling, norm, scale
        if pooling in ("class", "patches"):
            pool_by: Any = getattr(backbone, "pool_by", None)
            if pool_by is None:
                raise ArgumentError("pooling", f"is {pooling}, but {self.name} has no tokens; use avg")
            pool_by(pooling)
        self.frozen_norms: list[nn.Module] = []
        self.images_trained = 0
        self.adapter, self.adapter_merge = adapter, adapter_merge
        if adapter != "none":
            from lreid.models.adapters import add_adapter

            add_adapter(backbone, adapter, adapter_size, adapter_layers, torch.zeros(1, 3, height, width), self.name)
            self.freeze(0)
        self.precision: Precision = None
        self.neck: nn.Module = bn_neck(self.dim) if neck is True else neck or nn.Identity()
        if isinstance(neck, nn.Module):
            self.dim = int(neck.dim)  # type: ignore[arg-type]
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

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.mean.device

    def forward(self, images: Tensor) -> Tensor:
        """Compute pooled features (B, dim) of normalised images (B, 3, H, W), without scaling to unit length.

        Raises:
            ArgumentError: the images are not a tensor.
        """
        if not isinstance(images, Tensor):
            raise ArgumentError("images", "are no tensor (B, 3, H, W) of normalised images; for others call extract")
        return self.pool(self._outputs(images))  # (B, dim)

    def maps(self, images: Tensor) -> Tensor:
        """Compute the last feature maps (B, dim, h, w) float32 of normalised images (B, 3, H, W).

        Raises:
            ArgumentError: the backbone returns vectors.
        """
        outputs = self._outputs(images)
        if outputs.ndim != 4:
            raise ArgumentError("backbone", f"{self.name} returns vectors, but the method needs maps; use a CNN")
        return outputs

    def map_size(self) -> tuple[int, int]:
        """Measure the height and width of the feature maps of :meth:`maps` with a blank image.

        Raises:
            ArgumentError: the backbone returns vectors.
        """
        with torch.no_grad(), evaluating(self):
            maps = self.maps(torch.zeros(1, 3, self.height, self.width, device=self.mean.device))
        return maps.shape[2], maps.shape[3]

    def freeze(self, layers: int) -> None:
        """Freeze the first layers of the backbone, including the statistics of their BatchNorm layers.

        Raises:
            ArgumentError: the backbone has fewer layers than ``layers``, see :func:`~lreid.models.parts.layers_of`.
        """
        groups = layers_of(self.backbone)
        require(layers <= len(groups), "frozen_layers", layers, f"at most {len(groups)}, the layers of {self.name}")
        frozen = {id(each) for layer in groups[:layers] for each in layer}
        for parameter in self.backbone.parameters():
            if id(parameter) in frozen:
                parameter.requires_grad_(False)
        norms = [each for each in self.backbone.modules() if isinstance(each, _BatchNorm)]
        self.frozen_norms = [each for each in norms if each.weight is not None and not each.weight.requires_grad]
        self.train(self.training)

    def train(self, mode: bool = True) -> Embedder:
        """Set the training mode; frozen BatchNorm layers stay in evaluation mode."""
        super().train(mode)
        for norm in self.frozen_norms:
            norm.eval()
        return self

    def adapter_parameters(self) -> list[nn.Parameter]:
        """List the trained parameters of the backbone; the list is empty for a backbone without an adapter."""
        return [each for each in self.backbone.parameters() if each.requires_grad] if self.adapter != "none" else []

    def merge_adapter(self) -> None:
        """If ``adapter_merge`` is set, merge LoRA into the frozen weights and reset it; features do not change."""
        if self.adapter_merge:
            from lreid.models.adapters.lora import merge

            merge(self.backbone)

    def remove_adapter(self) -> None:
        """After the last training step, merge LoRA into the weights and remove it; other adapters remain."""
        if self.adapter == "lora":
            from lreid.models.adapters.lora import remove

            remove(self.backbone)
            self.adapter, self.adapter_merge = "none", False

    def pool(self, outputs: Tensor) -> Tensor:
        """Pool maps (B, dim, h, w) to features (B, dim); vectors do not change."""
        return pooled(outputs, self.pooling)

    def count(self, images: Sized) -> None:
        """Add images to :attr:`images_trained`, unless the network is not being trained."""
        if self.training and torch.is_grad_enabled():
            self.images_trained += len(images)  # only here: an export must not see the size of a batch

    def _outputs(self, images: Tensor) -> Tensor:
        self.count(images)
        if isinstance(self.precision, torch.dtype):
            with torch.autocast(images.device.type, self.precision):
                outputs = self._checked_outputs(images).float()
        else:
            with full_precision() if self.precision is None else tf32():
                outputs = self._checked_outputs(images)
        return outputs if self.scale == 1 else self.scale * outputs

    def _checked_outputs(self, images: Tensor) -> Tensor:
        """Compute the output of the backbone, and require a map (B, C, h, w) or vectors (B, C), where C is its dim."""
        outputs: Any = self.backbone(images)
        dim = getattr(self.backbone, "dim", self.dim)  # a neck or a method may change that of the embedder
        lengths = getattr(self.backbone, "lengths", (dim,))
        if not isinstance(outputs, Tensor) or outputs.ndim not in (2, 4) or outputs.shape[1] not in lengths:
            given = getattr(outputs, "shape", type(outputs).__name__)
            wanted = f"a tensor (B, {dim}) or (B, {dim}, h, w), or correct its attribute dim"
            raise ArgumentError("backbone", f"{self.name} returns {given}; return {wanted}")
        return outputs

    def normalise(self, images: Tensor) -> Tensor:
        """Convert uint8 RGB images (B, H, W, 3) to normalised float images (B, 3, H, W) for :meth:`forward`."""
        images = to_device(images, self.mean.device).permute(0, 3, 1, 2).float()
        return (images - self.mean) / self.std  # (B, 3, H, W)

    @torch.inference_mode()
    def extract(
        self, images: AnyImages, *, flip: bool = False, normalize: bool = False, batch_size: int = 128
    ) -> np.ndarray:
        """Extract features of images in evaluation mode and float32, then restore the model's mode and precision.

        In a terminal, a progress bar appears if extraction takes more than two seconds. Threads decode image files
        while the network computes. On the CPU, a model from :func:`lreid.load_model` uses merged layers and small
        batches, which make extraction faster. With merged layers, each feature has a cosine similarity of at least
        0.99999 to the feature without merged layers.

        Args:
            images: n images of any size, in one of these forms: a path, a folder, or a pattern such as
                ``"people/*.jpg"``; a PIL image; a uint8 array (H, W, 3) or grey (H, W); a list or an iterator of such
                images; a uint8 array or tensor (n, H, W, 3); a normalised float tensor (n, 3, H, W) on any device.
            flip: whether to add the features of the mirrored images, as DwoPP's evaluation does.
            normalize: whether to scale each feature to unit length, so that dot products are cosine similarities.
            batch_size: maximum number of images in a forward pass.

        Returns:
            Features (n, dim) float32, one row per image, pooled and after the neck if there is one. Compare the
            features by cosine similarity.

        Raises:
            InputError: a file is missing or cannot be read, ``images`` has none of the listed forms, an image has no
                pixels, or a float tensor has values that are not finite or that overflow float32 in the network. The
                message gives the position of the image in ``images``.
        """
        require(isinstance(batch_size, int) and batch_size >= 1, "batch_size", batch_size, "1 or more")
        given = sequence_of(images)
        total = None if isinstance(given, Iterator) else len(given)
        precision, self.precision = self.precision, None
        rows: list[np.ndarray] = []
        done = 0
        try:
            with evaluating(self), images_done(total, "extracting") as bar:
                network, step = self._for_extraction(batch_size)
                for batch in self._batches(given, step):
                    # Merged layers are valid only for the input size, which normalised images need not have.
                    fits = not batch.is_floating_point() or batch.shape[2:] == (self.height, self.width)
                    features = (network if fits else self)._features(batch, flip)
                    rows.append(finite(features.float().cpu().numpy(), done))
                    done += len(batch)
                    bar.update(len(batch))
        except Exception as error:
            raise_if_out_of_memory(error, f"batch_size={batch_size}", "lower it, or close other programs")
            raise
        finally:
            self.precision = precision
        vectors = np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12) if normalize else vectors

    def encode(self, images: AnyImages, *, flip: bool = False, batch_size: int = 128) -> np.ndarray:
        """Extract features (n, dim) float32 of unit length, see :meth:`extract`."""
        return self.extract(images, flip=flip, normalize=True, batch_size=batch_size)

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        """Compute the cosine similarities (n, m) float32 of n and m images.

        Args:
            first, second: images in any form of :meth:`extract`, or their features, (n, dim) or (dim,) floats.

        Raises:
            InputError: :meth:`extract` raises an error, or features have another length than ``dim``.
        """
        one, other = map(self._unit_features, (first, second))
        return one @ other.T

    def _unit_features(self, images: Any) -> np.ndarray:
        """Scale features (n, dim) or (dim,) to unit length, or extract those of images."""
        if getattr(images, "ndim", 3) > 2 or "float" not in str(images.dtype):
            return self.encode(images)
        features = np.atleast_2d(torch.as_tensor(images).float().cpu().numpy())
        require(features.shape[1] == self.dim, "features", features.shape, f"(n, {self.dim}) or ({self.dim},)")
        return features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("embed", "predict"):
                raise AttributeError(f"a model has no {name!r}; call model.encode(images)") from None
            raise

    def _for_extraction(self, batch_size: int) -> tuple[Embedder, int]:
        """Return the network for feature extraction, and the number of images per forward pass."""
        if self.inference is None or self.mean.device.type != "cpu":
            return self, batch_size
        return self.inference(self), min(batch_size, images_per_pass(self.height, self.width))

    def _batches(self, images: Sequence[Any] | np.ndarray | Tensor | Iterator[Any], step: int) -> Iterator[Tensor]:
        """Yield batches for :meth:`_features`, while threads decode the next batches."""
        with ExitStack() as stack:
            pool: ThreadPoolExecutor | None = None
            waiting: deque[Future[Tensor]] = deque()
            for first, part in batches_of(images, step):
                if pool is None and any(isinstance(each, (str, os.PathLike)) for each in part):
                    pool = stack.enter_context(decoding_threads(os.cpu_count()))
                if pool is None:
                    yield self._checked(part, first)
                    continue
                waiting.append(pool.submit(self._checked, part, first))
                if len(waiting) > DECODED_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _checked(self, part: Any, first: int) -> Tensor:
        """Check a batch of images, and decode it to uint8 (B, H, W, 3) of the input size, or keep a float tensor."""
        require_pixels(part, first)
        return part if isinstance(part, Tensor) and part.is_floating_point() else self._decoded(part)

    def ready(self, images: Any) -> Tensor:
        """Convert images of any form that :meth:`extract` accepts to float (B, 3, H, W) on the model's device.

        Raises:
            InputError: a file is missing or cannot be read, or the images have a form that :meth:`extract` does not
                accept.
        """
        if not (isinstance(images, Tensor) and images.is_floating_point()):
            images = self.normalise(self._decoded(images))
        elif images.ndim != 4 or images.shape[1] != 3:
            raise unsupported(images)
        return to_device(images, self.mean.device).to(self.mean.dtype)

    def _features(self, images: Any, flip: bool) -> Tensor:
        batch = self.ready(images)  # (B, 3, H, W)
        features = self.neck(self(batch))  # (B, dim)
        return features + self.neck(self(batch.flip(-1))) if flip else features

    def _decoded(self, images: Any) -> Tensor:
        """Decode images to a uint8 tensor (B, H, W, 3) of the input size."""
        if isinstance(images, (np.ndarray, Tensor)) and images.shape[1:] == (self.height, self.width, 3):
            tensor = images if isinstance(images, Tensor) else torch.from_numpy(images.copy())
            if tensor.dtype == torch.uint8:
                return tensor
        return torch.from_numpy(np.stack([read_rgb(each, height=self.height, width=self.width) for each in images]))


def images_per_pass(height: int, width: int) -> int:
    """Compute the number of images per forward pass on a CPU for a given image size."""
    return max(1, PIXELS // (height * width))


def pooled(maps: Tensor, pooling: str) -> Tensor:
    """Pool maps (B, dim, h, w) to vectors (B, dim) by ``pooling`` of :class:`Embedder`; return vectors unchanged."""
    if maps.ndim != 4:
        return maps
    if pooling == "gem":
        return maps.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)
    return maps.mean((2, 3))


def frozen_copy(model: AnyModule) -> AnyModule:
    """Copy a model; the copy is in evaluation mode, has the same precision, and needs no gradients."""
    return copy.deepcopy(model).eval().requires_grad_(False)
