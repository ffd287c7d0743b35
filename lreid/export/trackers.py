"""Write a model in the formats that trackers load, with a card."""

# The formats follow the code of BoxMOT 25.0, Ultralytics 8.4, deep-sort-realtime 1.3 and reid 0.1.

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional as F

from lreid.errors import InputError
from lreid.export.card import card_text
from lreid.export.formats import export
from lreid.export.reid import write_for_reid
from lreid.export.traced import ImageFunction, ImagesToFeatures, check_onnx, converted_to_onnx, onnx, write_traced
from lreid.models.embedder import Embedder
from lreid.models.inputs import IMAGENET
from lreid.utils.extras import Extra
from lreid.utils.files import write_text


def export_for(tool: str, model: Embedder, out: Path, *, config: str, source: str, opset: int) -> float:
    """Write a model in the format of another tool, with a card (``FILE.md``, or ``README.md`` in a folder).

    * ``boxmot``: an ONNX file whose input is images (n, 3, H, W), normalised by ImageNet's mean and standard deviation.
    * ``ultralytics``: an ONNX file whose input is images (n, 3, S, S) with values in [0, 1]. S is the larger one of
      height and width, because older releases of Ultralytics pass only square images.
    * ``deep-sort-realtime``: a file of :func:`lreid.export.export` for :class:`lreid.models.crops.CropEmbedder`.
    * ``reid``: a folder with ``reid_config.json`` and ``weights.safetensors``.

    Args:
        tool: name of the tool, from this list.
        model: the model, which this function does not change.
        out: the file ``.onnx`` to write, or the folder to create.
        config: config of the run that trained the model, as YAML.
        source: name from which the model was loaded, for the card.
        opset: version of ONNX's operators.

    Returns:
        Largest difference of features, as for :func:`lreid.export.export`.

    Raises:
        InputError: the tool does not support the model, or :func:`lreid.export.export` raises an error.
    """
    card = card_text(tool, model, out, config, source)
    if tool == "reid":
        return write_for_reid(model, out, card)
    if out.suffix != ".onnx":
        raise InputError(f"{out}: {tool} loads ONNX; name the file *.onnx")
    if tool == "deep-sort-realtime":
        difference = export(model, out, opset=opset, config=config)
    else:
        check_onnx(opset)
        network: ForBoxmot | ForUltralytics = ForBoxmot(model) if tool == "boxmot" else ForUltralytics(model)
        difference = write_traced(network, network.images, out, partial(_runnable, opset))
    write_text(out.with_name(f"{out.name}.md"), card)
    return difference


def _runnable(opset: int, program: ExportedProgram) -> tuple[bytes, ImageFunction]:
    """Return an ONNX file with the output name that trackers expect, and a network that runs the file."""
    model = converted_to_onnx(program, opset, "output0")
    onnx.helper.set_model_props(model, {"generator": "lreid"})
    content = model.SerializeToString()
    session = Extra("onnxruntime", "export").InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


class ForBoxmot(nn.Module):
    """Features of images (n, 3, H, W) that BoxMOT has normalised by ImageNet's mean and standard deviation."""

    scale: Tensor
    shift: Tensor

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        self.inner = ImagesToFeatures(model, raw=False)
        mean, std = (255 * torch.tensor(each).view(1, 3, 1, 1) for each in IMAGENET)
        own_mean, own_std = self.inner.model.mean, self.inner.model.std
        self.register_buffer("scale", std / own_std)
        self.register_buffer("shift", (mean - own_mean) / own_std)
        self.size = (model.height, model.width)

    def forward(self, images: Tensor) -> Tensor:
        """Compute features (n, dim)."""
        return self.inner(images * self.scale + self.shift)

    def images(self, number: int) -> Tensor:
        """Return random inputs for this network."""
        return torch.randn(number, 3, *self.size, generator=torch.Generator().manual_seed(number))


class ForUltralytics(nn.Module):
    """Features of square images (n, 3, S, S) in [0, 1], which are resized and normalised first."""

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        self.inner = ImagesToFeatures(model, raw=False)
        self.size = (model.height, model.width)
        self.side = max(self.size)

    def forward(self, images: Tensor) -> Tensor:
        """Compute features (n, dim)."""
        if self.size != (self.side, self.side):
            images = F.interpolate(images, self.size, mode="bilinear", align_corners=False)
        model = self.inner.model
        return self.inner((255 * images - model.mean) / model.std)

    def images(self, number: int) -> Tensor:
        """Return random inputs for this network."""
        return torch.rand(number, 3, self.side, self.side, generator=torch.Generator().manual_seed(number))
