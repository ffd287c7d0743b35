"""Write a model to a file that other programs can run. The exported network maps images to features."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.export import ExportedProgram

from lreid.errors import InputError, require
from lreid.export.traced import (
    OLDEST_OPSET,
    ImageFunction,
    ImagesToFeatures,
    check_onnx,
    converted_to_onnx,
    onnx,
    write_traced,
)
from lreid.models.embedder import Embedder
from lreid.models.exported import NORMALISED, RAW, OnnxEmbedder, seal
from lreid.models.fingerprint import fingerprint
from lreid.utils.extras import installed_version

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}


def export(
    model: Embedder,
    file: str | Path,
    *,
    form: Literal["onnx", "torch"] = "onnx",
    normalise: Literal["inside", "outside"] = "inside",
    opset: int = OLDEST_OPSET,
    config: str = "",
) -> float:
    """Write a network with pooling and neck to a file that computes the same features as :meth:`Embedder.extract`.

    Before the file is written, its features are compared with torch's features, for one image and for several images.
    The input ``images`` is a batch of any number of RGB images; the output ``features`` is (n, dim) float32. The file
    has these properties: ``backbone``, ``height`` and ``width`` in pixels, ``mean`` and ``std`` of values in [0, 1],
    ``images`` (the kind of input), ``fingerprint``, ``config`` and the version of ``lreid``. An ONNX file contains the
    properties as metadata, sealed by :func:`lreid.models.exported.seal`. A ``.pt2`` file contains the properties in the
    extra file ``lreid.json``.

    Args:
        model: the model, which this function does not change.
        file, form: path and format of the file: ``.onnx`` for ``onnx``, ``.pt2`` for ``torch``.
        normalise: where images are normalised. With ``inside``, the input is uint8 images (n, H, W, 3), which the
            network normalises. With ``outside``, the input is normalised float images (n, 3, H, W), see
            :meth:`Embedder.normalise`.
        opset: version of ONNX's operators, at least 18.
        config: config of the run that trained the network, as YAML.

    Returns:
        Largest difference from torch's features, relative to their largest absolute value.

    Raises:
        InputError: an option is invalid, a package is missing, the network cannot be exported, the features differ, or
            the file cannot be written. After an error, an existing file is unchanged.
    """
    file = Path(file)
    require(form in SUFFIXES, "form", form, " or ".join(SUFFIXES))
    require(normalise in ("inside", "outside"), "normalise", normalise, "inside or outside")
    if file.suffix != SUFFIXES[form]:
        raise InputError(f"{file}: a file of format {form} is named *{SUFFIXES[form]}; rename it")
    if form == "onnx":
        check_onnx(opset)
    properties = _properties(model, raw := normalise == "inside", config)

    def convert(program: ExportedProgram) -> tuple[bytes, ImageFunction]:
        return _to_onnx(program, properties, opset) if form == "onnx" else _to_torch(program, properties)

    return write_traced(ImagesToFeatures(model, raw=raw), partial(_images, model, raw), file, convert)


def _to_onnx(program: ExportedProgram, properties: dict[str, str], opset: int) -> tuple[bytes, ImageFunction]:
    model = converted_to_onnx(program, opset, "features")
    properties = properties | {"seal": seal(model.SerializeToString(), properties)}
    onnx.helper.set_model_props(model, properties)
    content = model.SerializeToString()
    return content, OnnxEmbedder(content)


def _to_torch(program: ExportedProgram, properties: dict[str, str]) -> tuple[bytes, ImageFunction]:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"lreid.json": json.dumps(properties)})
    buffer.seek(0)
    return buffer.getvalue(), torch.export.load(buffer).module()


def _images(model: Embedder, raw: bool, number: int) -> Tensor:
    """Create random images in the input format of the exported network."""
    generator = torch.Generator().manual_seed(number)
    size = (number, model.height, model.width, 3)
    images = torch.randint(256, size, dtype=torch.uint8, generator=generator)  # (n, H, W, 3)
    return images if raw else model.normalise(images).cpu()


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
