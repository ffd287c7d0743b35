"""Write a model in the format of the package reid: a folder with config, weights and a card."""

import json
import logging
from itertools import chain
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from lreid.errors import InputError, raise_if_out_of_memory, short_reason
from lreid.export.traced import TOLERANCE, ImagesToFeatures, difference_of
from lreid.models.embedder import Embedder
from lreid.utils.extras import Extra
from lreid.utils.files import folder_at_once, write_atomically, write_text

logger = logging.getLogger("lreid")

OSNETS = ("osnet_x0_25", "osnet_x0_5", "osnet_x0_75", "osnet_x1_0")  # names that reid has for torchreid's networks


def write_for_reid(model: Embedder, out: Path, card: str) -> float:
    """Write a model for the package reid; return the largest difference of features, as :func:`lreid.export.export`.

    Raises:
        InputError: the folder already exists or cannot be written, or reid cannot build this network.
    """
    if out.exists():
        raise InputError(f"{out}: already exists; choose another --out, or delete it")
    architecture, network = _as_reid_builds_it(model)
    if not isinstance(model.neck, nn.Identity):
        logger.warning("the neck is left out, because reid cannot store one; features are those before the neck")
    own = ImagesToFeatures(model, raw=False)
    own.model.neck = nn.Identity()
    inner = getattr(model.backbone, "inner", "")
    state = {key.removeprefix(inner): value.contiguous() for key, value in own.model.backbone.state_dict().items()}
    state = {key: value for key, value in state.items() if not key.startswith("classifier.")}
    reason = "the tensors have other names"
    try:
        misfits = chain.from_iterable(network.load_state_dict(state, strict=False))  # missing and foreign names
        if all(key.startswith("classifier.") for key in misfits):
            images = torch.randn(2, 3, model.height, model.width, generator=torch.Generator().manual_seed(0))
            difference = difference_of(own, network.eval(), [images])
            if difference <= TOLERANCE:
                _write(model, state, architecture, out, card)
                return difference
            reason = "the features differ, because pooling or strides differ, which weights do not record"
    except RuntimeError as error:  # tensors have different shapes
        raise_if_out_of_memory(error, out)
        reason = short_reason(error)
    raise InputError(f"{out}: not written: reid's {architecture} is a different network ({reason}); use --for boxmot")


def _as_reid_builds_it(model: Embedder) -> tuple[str, nn.Module]:
    """Return a network's name in reid, and the network that reid builds for this name, with random weights."""
    kind, _, name = model.name.partition(":")
    if kind == "torchreid" and name in OSNETS:
        models = Extra("torchreid", "torchreid").models
        return name, models.build_model(name, num_classes=1, loss="triplet", pretrained=False)
    if kind == "timm" and name:
        return model.name, Extra("timm", "timm").create_model(name, pretrained=False, num_classes=0)
    raise InputError(
        f"{model.name}: reid supports only torchreid's {', '.join(OSNETS)} and timm:NAME; "
        "train with the backbone torchreid:osnet_x1_0, or use --for boxmot"
    )


def _write(model: Embedder, state: dict[str, Tensor], architecture: str, out: Path, card: str) -> None:
    mean, std = ((each.flatten() / 255).tolist() for each in (model.mean, model.std))
    settings: dict[str, Any] = {
        "architecture": architecture,
        "preprocessing": {
            "input_size": [model.height, model.width],
            "mean": [round(value, 6) for value in mean],
            "std": [round(value, 6) for value in std],
            "interpolation": "bicubic",
            "to_rgb": True,
            "resize_mode": "stretch",
            "pad_value": 0,
        },
    }
    content = safetensors.torch.save(state)
    try:
        with folder_at_once(out) as part:
            if part is None:
                raise InputError(f"{out}: already exists; choose another --out, or delete it")
            write_atomically(part / "weights.safetensors", lambda file: file.write(content))
            write_text(part / "reid_config.json", json.dumps(settings, indent=1) + "\n")
            write_text(part / "README.md", card)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None
