"""Trace a network, convert it, and write the file only if its features equal those of the network."""

# Both formats come from one program that torch.export traces, with any number of images. The ONNX file is made by
# torch's exporter for such programs. Its older one, which traces TorchScript, gives equal features here and takes a
# tenth of the seconds, but is deprecated and would be a second way to be checked.

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from lreid.errors import InputError, refuse_out_of_memory
from lreid.extras import Extra
from lreid.files import write_atomically
from lreid.models.embedder import Embedder

TOLERANCE = 1e-4  # of the largest number in the features
BATCHES = ({0: torch.export.Dim("n")},)  # any number of images
OLDEST_OPSET = 18  # what torch writes; its conversion to older ones fails on means over axes
onnx = Extra("onnx", "export")

Network = Callable[[Tensor], Tensor]


def write_traced(
    network: nn.Module,
    images: Callable[[int], Tensor],
    file: Path,
    convert: Callable[[ExportedProgram], tuple[bytes, Network]],
) -> float:
    """Traces a network, converts it and writes it where the features of what came out are its own.

    Args:
        network: from images to features (n, dim).
        images: function from a number to that many images, as the network takes them.
        file: to be written.
        convert: gives the content of the file, and what runs it.

    Returns:
        The largest difference from the features of the network, relative to the largest number in them.

    Raises:
        InputError: the network cannot be exported, the features differ, or the file cannot be written. Then there is no
            file, or the one that was there before.
    """
    try:
        program = torch.export.export(network, (images(2),), dynamic_shapes=BATCHES)
        content, exported = convert(program)
        difference = difference_of(network, exported, [images(number) for number in (1, 5)])
    except Exception as error:  # tracing, converting and running raise nearly anything
        refuse_out_of_memory(error, file)
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{file}: not written, as the network cannot be exported ({reason})") from None
    if not difference <= TOLERANCE:
        raise InputError(
            f"{file}: not written, as its features differ from torch's by {difference:.1g} of the largest one "
            f"(allowed: {TOLERANCE:g}); try another --format or --opset"
        )
    write_atomically(file, lambda out: out.write(content))
    return difference


class ImagesToFeatures(nn.Module):
    """The computation of :meth:`Embedder.extract` for a batch of images of the input size.

    Args:
        model: copied, to the CPU and in evaluation mode.
        raw: take uint8 images (B, H, W, 3), else normalised ones (B, 3, H, W).
    """

    def __init__(self, model: Embedder, *, raw: bool) -> None:
        super().__init__()
        self.model, self.raw = copy.deepcopy(model).cpu().eval().requires_grad_(False), raw
        self.model.precision = None
        self.model.remove_adapter()

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, dim)."""
        return self.model.neck(self.model(self.model.normalise(images) if self.raw else images))


def check_onnx(opset: int) -> None:
    """Makes sure that ONNX can be written.

    Raises:
        InputError: a package is missing, or it does not know these operators.
    """
    for module in (onnx, Extra("onnxruntime", "export"), Extra("onnxscript", "export")):  # it compares, torch writes
        module.load()
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise InputError(f"--opset {opset}: must be from {OLDEST_OPSET} to {newest} here")


def converted_to_onnx(program: ExportedProgram, opset: int, output: str) -> Any:
    """An ONNX model, from ``images`` to what ``output`` names."""
    converted = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=opset,
        input_names=["images"],
        output_names=[output],
        dynamic_shapes=BATCHES,
        verbose=False,
    )
    assert converted is not None  # it is where the result is not written to a file
    return converted.model_proto


@torch.no_grad()
def difference_of(network: Network, exported: Network, batches: list[Tensor]) -> float:
    """The largest difference of features, relative to the largest number in them; NaN where there is one."""
    features, others = (torch.cat([each(images) for images in batches]) for each in (network, exported))
    return ((features - others).abs().max() / features.abs().max()).item()
