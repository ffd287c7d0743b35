"""Extract features faster on a CPU, with a copy of the network whose layers are merged."""

# tools/bench_extract.py measures the speed. A copy is used only if its features equal those of the original network, up
# to TOLERANCE.

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lreid.errors import raise_if_out_of_memory
from lreid.models.embedder import Embedder
from lreid.utils.devices import keep_freed_memory

KEPT = 256 << 20  # bytes of freed memory that the process keeps for the next forward pass
TOLERANCE = 1e-4  # largest difference of features, relative to the largest feature
ACTIVATIONS: dict[type[nn.Module], tuple[str, list[float]]] = {  # oneDNN's names and limits
    nn.ReLU: ("relu", []),
    nn.ReLU6: ("hardtanh", [0.0, 6.0]),
}
Calls = list[tuple[nn.Module, Tensor, Tensor]]  # modules with the input and output of each call


class Inference:
    """Keep a merged copy of a network for feature extraction, and build it again after the network has changed.

    PyTorch does not notice weights that are changed in place through ``parameter.data``. After such a change, assign a
    new ``Inference()``.
    """

    def __init__(self) -> None:
        self._state: list[Any] = []  # versions and addresses of the network's tensors, and its settings, of the copy
        self._alive: list[Tensor] = []  # these tensors with their memory, so that no other tensor gets their addresses
        self._copy: Embedder | None = None

    def __reduce__(self) -> tuple[type[Inference], tuple[()]]:
        return Inference, ()  # copies are empty, because weights of a copied network may change

    def __call__(self, model: Embedder) -> Embedder:
        """Return a network for the CPU that computes the same features as a model, up to the rounding of float32.

        The network works only for images of the model's input size.

        Args:
            model: a model on the CPU in evaluation mode, which this method does not change.
        """
        tensors = [*model.parameters(), *model.buffers()]
        if any(each.is_inference() for each in tensors):  # tensors without a version
            return model
        state: list[Any] = [(id(each), each._version, each.data_ptr()) for each in tensors]
        state.append((model.height, model.width, model.pooling, model.scale))
        if self._copy is None or state != self._state:
            keep_freed_memory(KEPT)
            self._alive = tensors + [each.detach() for each in tensors]
            self._state, self._copy = state, merged(model)
        return self._copy


@torch.inference_mode()
def merged(model: Embedder) -> Embedder:
    """Return a copy of a model with merged layers, or the model itself if the copy's features differ from the model's.

    Each BatchNorm is folded into the convolution before it. oneDNN computes each convolution together with the ReLU
    after it. Feature maps have the memory format channels_last.

    Args:
        model: a model on the CPU in evaluation mode, which this function does not change.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1, 3, model.height, model.width, generator=generator)
    images = images.to(model.mean.dtype, memory_format=torch.channels_last)
    expected = model(images)
    for merge in (_folded_and_fused, _folded):
        try:
            with torch.inference_mode(False), torch.no_grad():
                network = copy.deepcopy(model).to(memory_format=torch.channels_last)
            merge(network, images)
            if ((network(images) - expected).abs().max() <= TOLERANCE * expected.abs().max()).item():
                return network
        except Exception as error:  # layers of other packages may raise anything
            raise_if_out_of_memory(error, "extract")
    return model


def _folded(network: Embedder, images: Tensor) -> None:
    """Merge LoRA, fold every BatchNorm into the convolution before it, and join the two halves of IBN-a norms."""
    network.remove_adapter()
    for norm in list(network.modules()):
        if callable(merge := getattr(norm, "merged", None)):
            network.set_submodule(_name(network, norm), merge())
    for conv, norm in _neighbours(_calls(network, images), (nn.Conv2d,), (nn.BatchNorm2d,)):
        network.set_submodule(_name(network, conv), fuse_conv_bn_eval(conv, norm))
        network.set_submodule(_name(network, norm), getattr(norm, "act", nn.Identity()))  # act: of a timm norm


def _folded_and_fused(network: Embedder, images: Tensor) -> None:
    """Fold every BatchNorm, and let oneDNN compute each convolution together with the ReLU after it."""
    _folded(network, images)
    calls = _calls(network, images)
    activations = dict(_neighbours(calls, (nn.Conv2d,), tuple(ACTIVATIONS)))
    sizes = {module: image.shape for module, image, _ in reversed(calls) if isinstance(module, nn.Conv2d)}
    for conv, size in sizes.items():
        if conv.padding_mode == "zeros" and not isinstance(conv.padding, str):
            activation = activations.get(conv)
            network.set_submodule(_name(network, conv), _FusedConv(conv, activation, size))
            if activation is not None:
                network.set_submodule(_name(network, activation), nn.Identity())


class _FusedConv(nn.Module):
    """A convolution and its activation, if any; the weights have the layout of oneDNN for inputs of shape ``size``.

    This class alone calls operators that torch does not document. :func:`merged` does without them if they fail or
    differ. Documented ways are slower: folding alone takes 1.15 to 1.25 times as long, TorchScript is deprecated, and
    torch.compile needs a C++ compiler.
    """

    def __init__(self, conv: nn.Conv2d, activation: nn.Module | None, size: torch.Size) -> None:
        super().__init__()
        self.name, self.limits = ("none", []) if activation is None else ACTIVATIONS[type(activation)]
        weight, padding = _symmetric(conv, size)
        self.settings = padding, conv.stride, conv.dilation, conv.groups
        self.bias = conv.bias
        pack = torch.ops.aten.mkldnn_reorder_conv2d_weight
        self.weight = pack(weight.contiguous().to_mkldnn(), *self.settings, list(size))

    def forward(self, maps: Tensor) -> Tensor:
        """Convolve maps (B, C, H, W) to (B, C', H', W')."""
        convolve = torch.ops.mkldnn._convolution_pointwise
        return convolve(maps, self.weight, self.bias, *self.settings, self.name, self.limits, "")


def _symmetric(conv: nn.Conv2d, size: torch.Size) -> tuple[Tensor, tuple[int, ...]]:
    """Return a convolution's weights and padding, changed so that the padding is the same on both sides.

    Convolutions that timm took over from TensorFlow compute their padding from the input size. If the padding is odd,
    the right side or the bottom has one pixel more. For an odd padding, a column or row of zeros is added before the
    weights, which makes the padding equal on both sides.
    """
    weight = conv.weight.detach()
    if type(conv).__name__ != "Conv2dSame":
        return weight, tuple(int(each) for each in conv.padding)
    lacking = []  # height, width
    for side, stride, kernel, dilation in zip(size[2:], conv.stride, conv.kernel_size, conv.dilation, strict=True):
        lacking.append(max(0, (-(-side // stride) - 1) * stride + (kernel - 1) * dilation + 1 - side))
    top, left = (each % 2 for each in lacking)
    if (top and conv.dilation[0] > 1) or (left and conv.dilation[1] > 1):
        raise ValueError("a dilated convolution with odd padding")
    return F.pad(weight, [left, 0, top, 0]), tuple((each + 1) // 2 for each in lacking)


def _calls(network: nn.Module, images: Tensor) -> Calls:
    """Run a network, and list its convolutions, norms and activations with input and output, in the order of calls."""
    calls: Calls = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((module, inputs[0], output))

    kinds = (nn.Conv2d, nn.BatchNorm2d, *ACTIVATIONS)
    hooks = [each.register_forward_hook(note) for each in network.modules() if isinstance(each, kinds)]
    network(images)
    for hook in hooks:
        hook.remove()
    return calls


def _neighbours(
    calls: Calls, first: tuple[type[nn.Module], ...], second: tuple[type[nn.Module], ...]
) -> list[tuple[Any, Any]]:
    """Find pairs of modules, each called once, in which the second takes the output of the first as its input."""
    counts = Counter(module for module, _, _ in calls)
    latest: dict[int, nn.Module] = {}  # by id of the output; the list keeps tensors alive, so that no two share an id
    pairs = []
    for module, image, output in calls:
        before = latest.get(id(image))
        if isinstance(before, first) and isinstance(module, second) and counts[before] == counts[module] == 1:
            pairs.append((before, module))
        latest[id(output)] = module
    return pairs


def _name(network: nn.Module, module: nn.Module) -> str:
    return next(name for name, each in network.named_modules() if each is module)
