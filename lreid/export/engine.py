"""Run a trained model with onnxruntime instead of torch."""

import contextlib
import logging

from lreid.errors import InputError
from lreid.export.formats import export
from lreid.models.embedder import Embedder
from lreid.models.exported import OnnxEmbedder
from lreid.models.fingerprint import fingerprint
from lreid.utils.extras import Extra
from lreid.zoo.weights import cache_folder

logger = logging.getLogger("lreid")


def onnx_model(model: Embedder) -> OnnxEmbedder:
    """Return a version of the model that runs in onnxruntime on the CPU.

    The first call for a model takes some seconds, because it exports the model to ``onnx/FINGERPRINT.onnx`` in the
    folder of downloads (:func:`lreid.zoo.weights.cache_folder`). Later calls load this file.

    Args:
        model: the model, which this function does not change.

    Raises:
        InputError: onnxruntime is not installed, or :func:`lreid.export.export` raises an error.
    """
    if isinstance(model, OnnxEmbedder):
        return model
    Extra("onnxruntime", "export").load()
    name = fingerprint(model)
    file = cache_folder() / "onnx" / f"{name}.onnx"
    with contextlib.suppress(InputError):  # the file does not exist yet, or is damaged
        if file.exists() and (exported := OnnxEmbedder(file)).fingerprint == name:
            return exported
    logger.info("exporting the model for onnxruntime to %s", file)
    export(model, file)
    return OnnxEmbedder(file)
