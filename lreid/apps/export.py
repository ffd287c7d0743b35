"""Write a model as one file for other programs: images in, features out."""

# Both formats come from one program that torch.export traces, with any number of images. The ONNX file is made by
# torch's exporter for such programs. Its older one, which traces TorchScript, gives equal features here and takes a
# tenth of the seconds, but is deprecated and would be a second way to be checked.

from __future__ import annotations

import argparse
import copy
import io
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from lreid.errors import InputError, refuse_out_of_memory
from lreid.extras import Extra
from lreid.files import list_folder, write_atomically
from lreid.loading import load_model, model_config
from lreid.models.embedder import Embedder
from lreid.models.exported import NORMALISED, RAW, OnnxEmbedder, seal
from lreid.models.fingerprint import fingerprint
from lreid.training.run import installed_version

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-4  # of the largest number in the features
onnx = Extra("onnx", "export")
BATCHES = ({0: torch.export.Dim("n")},)  # any number of images
OLDEST_OPSET = 18  # what torch writes; its conversion to older ones fails on means over axes

Network = Callable[[Tensor], Tensor]


def run(args: argparse.Namespace) -> None:
    """Writes the file and says how far its features are from the model's."""
    for name in ("onnxscript", "onnx_ir"):  # torch's exporter tells its passes by them
        logging.getLogger(name).setLevel(logging.WARNING)
    model, config = load_model(args.model), model_config(args.model).dump()
    if args.tool:
        for option in ("format", "normalise"):
            if getattr(args, option) is not None:
                raise InputError(f"--{option}: --for {args.tool} decides it; leave one of the two out")
        from lreid.apps.trackers import export_for

        difference = export_for(args.tool, model, args.out, config=config, source=args.model, opset=args.opset)
    else:
        difference = export(
            model,
            args.out,
            form=args.format or "onnx",
            normalise=args.normalise or "inside",
            opset=args.opset,
            config=config,
        )
    parts = list_folder(args.out, "*.safetensors") if args.out.is_dir() else [args.out]
    size = sum(each.stat().st_size for each in parts) / 2**20
    print(f"{args.out}: {model.name}, {model.height} x {model.width} pixels to {model.dim} numbers, {size:.1f} MiB;")
    print(f"its features differ from the model's by {difference:.0e} of the largest one")


def export(
    model: Embedder,
    file: str | Path,
    *,
    form: Literal["onnx", "torch"] = "onnx",
    normalise: Literal["inside", "outside"] = "inside",
    opset: int = OLDEST_OPSET,
    config: str = "",
) -> float:
    """Writes a network with pooling and neck, so that its output is that of :meth:`Embedder.extract`.

    The file is written only if it gives the same features as torch, for one image and for several.

    Its input ``images`` is a batch of any size of RGB images, its output ``features`` is (n, dim) float32. Properties
    of the file tell ``backbone``, ``height`` and ``width`` in pixels, ``mean`` and ``std`` of values in [0, 1],
    ``images`` (what it takes), ``fingerprint``, ``config`` and the version of ``lreid``: in ONNX as metadata, sealed by
    :func:`lreid.models.exported.seal`, in the other format as the extra file ``lreid.json``.

    Args:
        model: stays as it is.
        file: to be written, ``.onnx`` or, for ``torch``, ``.pt2``.
        form: ``onnx`` or ``torch``.
        normalise: ``inside`` takes uint8 images (n, H, W, 3), ``outside`` float images (n, 3, H, W) of
            :meth:`Embedder.normalise`.
        opset: version of ONNX's operators, at least 18.
        config: of the run that trained the network, YAML.

    Returns:
        The largest difference from torch's features, relative to the largest number in them.

    Raises:
        InputError: an option does not fit, a package is not installed, the network cannot be exported, the features
            differ, or the file cannot be written. Then there is no file, or the one that was there before.
    """
    file = Path(file)
    if form not in SUFFIXES or normalise not in ("inside", "outside"):
        raise InputError(
            f"format {form!r}, normalise {normalise!r}: the formats are {' and '.join(SUFFIXES)}, "
            "and images are normalised inside or outside"
        )
    if file.suffix != SUFFIXES[form]:
        raise InputError(f"{file}: a file of format {form} is named *{SUFFIXES[form]}; rename it")
    if isinstance(model, OnnxEmbedder):
        raise InputError(f"{model.file}: is exported already; name the model that it was made of")
    if form == "onnx":
        check_onnx(opset)
    raw = normalise == "inside"
    properties = _properties(model, raw, config)

    def convert(program: ExportedProgram) -> tuple[bytes, Network]:
        return _to_onnx(program, properties, opset) if form == "onnx" else _to_torch(program, properties)

    return write_traced(ImagesToFeatures(model, raw=raw), partial(_images, model, raw), file, convert)


def write_traced(
    network: nn.Module,
    images: Callable[[int], Tensor],
    file: Path,
    convert: Callable[[ExportedProgram], tuple[bytes, Network]],
) -> float:
    """Traces a network, converts it and writes it where the features of what came out are its own.

    Args:
        network: from images to features (n, dim).
        images: gives so many images, as the network takes them.
        file: to be written.
        convert: gives the content of the file, and what runs it.

    Returns:
        As :func:`export`.

    Raises:
        InputError: as :func:`export`.
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
    """All that :meth:`Embedder.extract` does to a batch of images of the input size.

    Args:
        model: copied, to the CPU and in evaluation mode.
        raw: take uint8 images (B, H, W, 3), else normalised ones (B, 3, H, W).
    """

    def __init__(self, model: Embedder, *, raw: bool) -> None:
        super().__init__()
        self.model, self.raw = copy.deepcopy(model).cpu().eval().requires_grad_(False), raw
        self.model.precision = None

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


def _to_onnx(program: ExportedProgram, properties: dict[str, str], opset: int) -> tuple[bytes, Network]:
    model = converted_to_onnx(program, opset, "features")
    properties = properties | {"seal": seal(model.SerializeToString(), properties)}
    onnx.helper.set_model_props(model, properties)
    content = model.SerializeToString()
    return content, OnnxEmbedder(content)


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


def _to_torch(program: ExportedProgram, properties: dict[str, str]) -> tuple[bytes, Network]:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"lreid.json": json.dumps(properties)})
    buffer.seek(0)
    return buffer.getvalue(), torch.export.load(buffer).module()


def _images(model: Embedder, raw: bool, number: int) -> Tensor:
    """Random images, as the exported network takes them."""
    generator = torch.Generator().manual_seed(number)
    size = (number, model.height, model.width, 3)
    images = torch.randint(256, size, dtype=torch.uint8, generator=generator)  # (n, H, W, 3)
    return images if raw else model.normalise(images).cpu()


@torch.no_grad()
def difference_of(network: Network, exported: Network, batches: list[Tensor]) -> float:
    """The largest difference of features, relative to the largest number in them; NaN where there is one."""
    features, others = (torch.cat([each(images) for images in batches]) for each in (network, exported))
    return ((features - others).abs().max() / features.abs().max()).item()


def _properties(model: Embedder, raw: bool, config: str) -> dict[str, str]:
    mean, std = ([round(value / 255, 6) for value in each.flatten().tolist()] for each in (model.mean, model.std))
    return {
        "backbone": model.name,
        "height": json.dumps(model.height),
        "width": json.dumps(model.width),
        "mean": json.dumps(mean),
        "std": json.dumps(std),
        "images": RAW if raw else NORMALISED,
        "fingerprint": fingerprint(model),
        "config": config,
        "lreid": installed_version("lreid") or "unknown",
    }
