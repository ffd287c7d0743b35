"""Trace and convert a network; write the result only if it computes the same features as the network."""

# Both formats are converted from a program that torch.export traces for any number of images. For ONNX, torch has an
# exporter for such programs. torch's older exporter, based on TorchScript, gives equal features in a tenth of the time,
# but is deprecated and would need additional tests.

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from lreid.errors import InputError, raise_if_out_of_memory, short_reason
from lreid.models.embedder import Embedder
from lreid.models.exported import OnnxEmbedder
from lreid.utils.extras import Extra
from lreid.utils.files import write_atomically

TOLERANCE = 1e-4  # largest allowed difference, relative to the largest number in the features
BATCHES = ({0: torch.export.Dim("n")},)  # the exported network takes any number of images
OLDEST_OPSET = 18  # the version that torch writes; torch's conversion to older versions fails on means over axes
onnx = Extra("onnx", "export")

ImageFunction = Callable[[Tensor], Tensor]


def write_traced(
    network: nn.Module,
    images: Callable[[int], Tensor],
    file: Path,
    convert: Callable[[ExportedProgram], tuple[bytes, ImageFunction]],
) -> float:
    """Trace and convert a network; write the result if it computes the same features as the network.

    Args:
        network: network that maps images to features (n, dim).
        images: function that returns a given number of images, in the network's input format.
        file: the file to write.
        convert: function that returns the content of the file, and a network that runs it.

    Returns:
        Largest difference from the network's features, relative to their largest absolute value.

    Raises:
        InputError: the network cannot be exported, the features differ, or the file cannot be written. After an error,
            an existing file is unchanged.
    """
    try:
        program = torch.export.export(network, (images(2),), dynamic_shapes=BATCHES)
        content, exported = convert(program)
        difference = difference_of(network, exported, [images(number) for number in (1, 5)])
    except Exception as error:  # tracing, converting and running raise many kinds of exceptions
        raise_if_out_of_memory(error, file)
        raise InputError(f"{file}: not written: the network cannot be exported ({short_reason(error)})") from None
    if not difference <= TOLERANCE:
        raise InputError(
            f"{file}: not written, because its features differ from torch's by {difference:.1g} of the largest number "
            f"in them (allowed: {TOLERANCE:g}); try another --format or --opset"
        )
    write_atomically(file, lambda out: out.write(content))
    return difference


class ImagesToFeatures(nn.Module):
    """The computation of :meth:`Embedder.extract` for a batch of images that have the input size.

    Args:
        model: the model, which this class copies to the CPU in evaluation mode.
        raw: whether the input is uint8 images (B, H, W, 3) instead of normalised images (B, 3, H, W).
    """

    def __init__(self, model: Embedder, *, raw: bool) -> None:
        super().__init__()
        if isinstance(model, OnnxEmbedder):
            raise InputError(f"{model.file}: is exported already; pass the model from which it was made")
        self.model, self.raw = copy.deepcopy(model).cpu().eval().requires_grad_(False), raw
        self.model.precision = None
        self.model.remove_adapter()

    def forward(self, images: Tensor) -> Tensor:
        """Compute features (B, dim)."""
        return self.model.neck(self.model(self._normalised(images) if self.raw else images))

    def _normalised(self, images: Tensor) -> Tensor:
        """Convert uint8 images (B, H, W, 3) to (B, 3, H, W) as :meth:`Embedder.normalise` does."""
        # In rows of pixels: otherwise onnxruntime moves the transposition of a quantised network behind these
        # operations, which then take a quarter of the network's time.
        count, height, width, _ = images.shape
        rows = images.reshape(count, height * width, 3).transpose(1, 2).float()  # (B, 3, HW)
        rows = (rows - self.model.mean.flatten(2)) / self.model.std.flatten(2)
        return rows.reshape(count, 3, height, width)


def check_onnx(opset: int) -> None:
    """Check that ONNX files can be written.

    Raises:
        InputError: a package is missing, or ``opset`` is not supported.
    """
    for module in (onnx, Extra("onnxruntime", "export"), Extra("onnxscript", "export")):
        module.load()
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise InputError(f"--opset {opset}: must be from {OLDEST_OPSET} to {newest} here")


def converted_to_onnx(program: ExportedProgram, opset: int, output: str) -> Any:
    """Convert a program to an ONNX model with the input name ``images`` and the output name ``output``."""
    for name in ("onnxscript", "onnx_ir"):  # torch's exporter logs its steps to these loggers
        logging.getLogger(name).setLevel(logging.WARNING)
    converted = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=opset,
        input_names=["images"],
        output_names=[output],
        dynamic_shapes=BATCHES,
        verbose=False,
    )
    assert converted is not None  # torch returns None only if it writes a file itself
    return converted.model_proto


@torch.no_grad()
def difference_of(network: ImageFunction, exported: ImageFunction, batches: list[Tensor]) -> float:
    """Return the largest difference of features relative to the network's largest value; NaN if a feature is NaN."""
    features, others = (torch.cat([each(images) for images in batches]) for each in (network, exported))
    return ((features - others).abs().max() / features.abs().max()).item()
