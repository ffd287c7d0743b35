"""Quantise a network to 8-bit integers, calibrated on images, and write it as an ONNX file for CPUs."""

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lreid.errors import ArgumentError, InputError, raise_if_out_of_memory, short_reason
from lreid.export.formats import export
from lreid.models.embedder import Embedder
from lreid.models.exported import RAW, OnnxEmbedder, seal
from lreid.utils.extras import Extra
from lreid.utils.files import write_atomically

CALIBRATED_ON = 128  # maximum number of calibration images, evenly spread over the given images
STEP = 4  # number of images per batch
quantization, onnx = Extra("onnxruntime.quantization", "export"), Extra("onnx", "export")


def _quantise(prepared: Path, small: Path, reader: Any) -> None:
    """Quantise all layers from the first convolution to the last layer."""
    # The nodes before the first convolution normalise the images, which is faster in float32.
    before = takewhile(lambda node: node.op_type != "Conv", onnx.load_model(prepared).graph.node)
    quantization.quantize_static(
        prepared,
        small,
        reader,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        nodes_to_exclude=[node.name for node in before],
        per_channel=True,
        reduce_range=True,
    )


def export_int8(model: Embedder, file: Path, images: Sequence[str], **options: Any) -> None:
    """Write a network whose convolutions compute with 8-bit integers (static quantisation of onnxruntime).

    Weights have only 7 bits, with a scale per channel, because 8 bits would overflow the 16-bit sums of processors
    without VNNI instructions. The file has a fingerprint of its own, because its features differ slightly from the
    model's and should not be in the same gallery.

    Args:
        model: the model, which this function does not change.
        file: the file to write, ``.onnx``.
        images: paths of one or more images; up to 128 of them calibrate the ranges of activations.
        options: options ``normalise``, ``opset`` and ``config`` of :func:`lreid.export.export`.

    Raises:
        InputError: :func:`lreid.export.export` raises an error, an image cannot be read, or onnxruntime cannot quantise
            the network.
    """
    if file.suffix != ".onnx":
        raise InputError(f"{file}: an 8-bit network is written as ONNX; name the file *.onnx")
    if not images:
        raise ArgumentError("images", "are empty; give images that calibrate the ranges of activations")
    with tempfile.TemporaryDirectory() as folder:
        whole, prepared, small = (Path(folder, f"{name}.onnx") for name in ("whole", "prepared", "small"))
        export(model, whole, **options)
        batches = _batches(model, OnnxEmbedder(whole).takes == RAW, images[:: -(-len(images) // CALIBRATED_ON)])
        reader = SimpleNamespace(get_next=lambda: next(batches, None))
        disabled = logging.root.manager.disable
        logging.disable(max(disabled, logging.WARNING))  # onnxruntime warns about every scale that it rounds
        try:
            quantization.shape_inference.quant_pre_process(whole, prepared, skip_symbolic_shape=True)
            _quantise(prepared, small, reader)
        except InputError:
            raise
        except Exception as error:  # onnxruntime's exceptions have no common base class
            raise_if_out_of_memory(error, file)
            raise InputError(f"{file}: not written: the network cannot be quantised ({short_reason(error)})") from None
        finally:
            logging.disable(disabled)
        written = onnx.load_model(small)
        properties = {each.key: each.value for each in onnx.load_model(whole).metadata_props}
    content = written.SerializeToString()
    properties["fingerprint"] = hashlib.sha256(content).hexdigest()[:16]
    properties["seal"] = seal(content, properties)
    onnx.helper.set_model_props(written, properties)
    write_atomically(file, lambda out: out.write(written.SerializeToString()))


def _batches(model: Embedder, raw: bool, images: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Return batches of images as inputs of the ONNX file."""
    for first in range(0, len(images), STEP):
        batch = model._decoded(images[first : first + STEP])
        yield {"images": (batch if raw else model.normalise(batch)).numpy()}
