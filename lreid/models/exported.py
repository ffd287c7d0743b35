"""Use an ``.onnx`` file as a model; onnxruntime computes the features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lreid.errors import InputError, short_reason
from lreid.models.embedder import Embedder, images_per_pass
from lreid.utils.extras import Extra
from lreid.utils.reading import misfit, raise_if_unreadable, read_bytes

RAW, NORMALISED = "uint8 (n, H, W, 3)", "normalised float32 (n, 3, H, W)"  # the two kinds of input images
PREPARATION = {"height": int, "width": int, "mean": [(int, float)], "std": [(int, float)]}  # types of the values
onnx, onnxruntime = Extra("onnx", "export"), Extra("onnxruntime", "export")


class OnnxEmbedder(Embedder):
    """A model in a file that :func:`lreid.export.export` wrote; onnxruntime runs it on the CPU, without training.

    :meth:`extract` returns the same features as the exported network, up to the rounding of float32. If the exported
    network normalises images itself, the model does not accept normalised images.

    Args:
        file: path or content of an ONNX file.

    Attributes:
        fingerprint: fingerprint of the network that was exported. A gallery that was built with the original network
            can therefore be searched with the file, and vice versa. If the file was changed after the export (see
            :func:`seal`), ``fingerprint`` is a hash of its network instead.
        origin: fingerprint of the original network, as written in the file.
        config: YAML config of the run that trained the network; empty if unknown.

    Raises:
        InputError: the file does not exist, is damaged, was not written by lreid, or stores weights in separate files.
    """

    def __init__(self, file: str | Path | bytes) -> None:
        nn.Module.__init__(self)  # Embedder would build a backbone
        self.frozen_norms = []
        self.file = "ONNX" if isinstance(file, bytes) else str(file)
        content, self.session = _session(file, self.file)
        metadata = self.session.get_modelmeta().custom_metadata_map
        try:
            self.name, self.origin, self.takes = (metadata[key] for key in ("backbone", "fingerprint", "images"))
            run = seal(content, metadata)
            self.fingerprint = self.origin if run == metadata.get("seal") else run[:16]
            prepared = {key: json.loads(metadata[key]) for key in PREPARATION}
            if fault := misfit(prepared, PREPARATION):
                raise ValueError(fault)
            mean, std = (255 * torch.tensor(prepared[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
            (images,), (features,) = self.session.get_inputs(), self.session.get_outputs()
            if list(images.shape[1:]) != list(_size(self.takes, prepared["height"], prepared["width"])):
                raise ValueError(f"it takes images of shape {images.shape}")
            if not (isinstance(features.shape[-1], int) and bool((std > 0).all()) and bool(mean.isfinite().all())):
                raise ValueError("its features have no length, or mean and std are not numbers")
        except (KeyError, ValueError, RuntimeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{self.file}: was not written by lreid: its properties do not say how images are prepared ({error}); "
                "make one with lreid export"
            ) from None
        self.height, self.width = prepared["height"], prepared["width"]
        self.config = metadata.get("config", "")
        self.dim = features.shape[-1]
        self.precision, self.neck = None, nn.Identity()  # the neck is in the file
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxEmbedder:
        return self  # the model never changes, and a session cannot be copied

    def forward(self, images: Tensor) -> Tensor:
        """Compute features (B, dim) of images on the CPU; the attribute ``takes`` describes the form of the images."""
        size = _size(self.takes, self.height, self.width)
        if images.shape[1:] != size or images.is_floating_point() == (self.takes == RAW):
            raise InputError(
                f"{self.file}: takes {self.takes} images with H = {self.height} and W = {self.width}, got "
                f"{images.dtype} {tuple(images.shape)}; lreid export --normalise makes files for either kind"
            )
        return torch.from_numpy(self.session.run(None, {"images": images.cpu().numpy()})[0])  # (B, dim)

    def _for_extraction(self, batch_size: int) -> tuple[Embedder, int]:
        return self, min(batch_size, images_per_pass(self.height, self.width))

    def _features(self, images: Any, flip: bool) -> Tensor:
        if not (isinstance(images, Tensor) and images.is_floating_point()):
            images = self._decoded(images)  # (B, H, W, 3)
            if self.takes == NORMALISED:
                images = self.normalise(images)  # (B, 3, H, W)
        else:
            images = images.float()
        features = self(images)  # (B, dim)
        return features + self(images.flip(2 if self.takes == RAW else 3)) if flip else features


def _size(takes: str, height: int, width: int) -> tuple[int, int, int]:
    """Return the shape of one image in the form that the file expects."""
    return (height, width, 3) if takes == RAW else (3, height, width)


def seal(content: bytes, properties: Mapping[str, str]) -> str:
    """Hash all parts of an ONNX file that determine its features, and the fingerprint that the file contains.

    An exported file contains this hash as its seal. If the seal still equals the hash, the weights and the hashed
    properties have not changed. A seal reveals files that were mixed up or edited, but not forgeries, because a forger
    can compute a new seal.

    Args:
        content: content of the file; the file's properties in it are ignored.
        properties: properties of the file, of which ``fingerprint``, ``images`` and the keys of ``PREPARATION`` are
            hashed.

    Returns:
        64 hexadecimal digits.

    Raises:
        KeyError: a property is missing.
    """
    model = onnx.ModelProto.FromString(content)
    del model.metadata_props[:]
    digest = hashlib.sha256(model.SerializeToString())
    digest.update(json.dumps([properties[key] for key in ("fingerprint", "images", *PREPARATION)]).encode())
    return digest.hexdigest()


def _session(file: str | Path | bytes, name: str) -> tuple[bytes, Any]:
    """Return the content of an ONNX file and a session of onnxruntime that runs it."""
    for module in (onnxruntime, onnx):
        module.load()  # otherwise, the error about a missing package would be one about the file
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # log only errors, which are also raised
    try:
        content = file if isinstance(file, bytes) else read_bytes(file)
        if _elsewhere(onnx.ModelProto.FromString(content), onnx.TensorProto):
            raise InputError(f"{name}: its weights are in other files; write a single file with lreid export")
        return content, onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # exceptions of protobuf and onnxruntime share no base class
        raise_if_unreadable(error, name)
        raise InputError(f"{name}: cannot be read as ONNX: damaged or another kind ({short_reason(error)})") from None


def _elsewhere(message: Any, tensor: Any) -> bool:
    """Whether an ONNX message stores a tensor in a separate file, which somebody could replace."""
    if isinstance(message, tensor):
        return bool(message.external_data) or message.data_location == tensor.EXTERNAL
    values = [value for field, value in message.ListFields() if field.message_type is not None]
    inner = chain.from_iterable([value] if hasattr(value, "ListFields") else value for value in values)
    return any(_elsewhere(each, tensor) for each in inner)
