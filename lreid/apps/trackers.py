"""Write a model as trackers load it, each in its own way, with a card that says what it is."""

# What each tool wants was read in its code: BoxMOT 25.0, Ultralytics 8.4, deep-sort-realtime 1.3, reid 0.1.

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional as F
from yacs.config import CfgNode

from lreid import zoo
from lreid.apps.export import (
    TOLERANCE,
    ImagesToFeatures,
    Network,
    check_onnx,
    converted_to_onnx,
    difference_of,
    export,
    write_traced,
)
from lreid.config import config_from_text
from lreid.data.writing import folder_at_once
from lreid.errors import InputError, refuse_out_of_memory
from lreid.extras import Extra
from lreid.files import write_atomically, write_text
from lreid.models.embedder import Embedder
from lreid.models.exported import OnnxEmbedder
from lreid.models.fingerprint import fingerprint
from lreid.models.packages import IMAGENET
from lreid.training.run import installed_version

logger = logging.getLogger("lreid")

OSNETS = ("osnet_x0_25", "osnet_x0_5", "osnet_x0_75", "osnet_x1_0")  # of reid
USE = {
    "boxmot": 'boxmot track --reid {out}, or ReID("{out}") of boxmot.reid; BoxMOT resizes and normalises',
    "ultralytics": "botsort.yaml: with_reid: True, model: {out}; {square} x {square} pixels in, normalised inside",
    "deep-sort-realtime": "tracker = DeepSort(embedder=None); "
    'tracker.embedder = lreid.CropEmbedder(lreid.load_model("{out}"))',
    "reid": 'ReIDModel.from_pretrained("{out}")',
}


def export_for(tool: str, model: Embedder, out: Path, *, config: str, source: str, opset: int) -> float:
    """Writes what a tool loads, and a card beside it (``FILE.md``, or ``README.md`` in a folder).

    * ``boxmot``: an ONNX file of images (n, 3, H, W), normalised as ImageNet's.
    * ``ultralytics``: one of images (n, 3, S, S) in [0, 1], S the larger side: earlier releases give squares only.
    * ``deep-sort-realtime``: a file of :func:`lreid.apps.export.export`, for :class:`lreid.models.crops.CropEmbedder`.
    * ``reid``: a folder with ``reid_config.json`` and ``weights.safetensors``.

    Args:
        tool: one of these.
        model: stays as it is.
        out: file ``.onnx``, or folder to be made.
        config: of the run that trained it, YAML.
        source: what it was loaded from, for the card.
        opset: of ONNX.

    Returns:
        As :func:`lreid.apps.export.export`.

    Raises:
        InputError: the tool has no place for the model, or as :func:`lreid.apps.export.export`.
    """
    if isinstance(model, OnnxEmbedder):
        raise InputError(f"{model.file}: is exported already; name the model that it was made of")
    if tool == "reid":
        return _for_reid(model, out, config, source)
    if out.suffix != ".onnx":
        raise InputError(f"{out}: {tool} loads ONNX; name the file *.onnx")
    if tool == "deep-sort-realtime":
        difference = export(model, out, opset=opset, config=config)
    else:
        check_onnx(opset)
        network: ForBoxmot | ForUltralytics = ForBoxmot(model) if tool == "boxmot" else ForUltralytics(model)
        difference = write_traced(network, network.images, out, partial(_runnable, opset))
    write_text(out.with_name(f"{out.name}.md"), card_text(tool, model, out, config, source))
    return difference


def _runnable(opset: int, program: ExportedProgram) -> tuple[bytes, Network]:
    """An ONNX file under the names that trackers know, and what runs it."""
    content = converted_to_onnx(program, opset, "output0").SerializeToString()
    session = Extra("onnxruntime", "export").InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


class ForBoxmot(nn.Module):
    """Features of images (n, 3, H, W) that BoxMOT has normalised by ImageNet's mean and deviation."""

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
        """Features (n, dim)."""
        return self.inner(images * self.scale + self.shift)

    def images(self, number: int) -> Tensor:
        """Random ones."""
        return torch.randn(number, 3, *self.size, generator=torch.Generator().manual_seed(number))


class ForUltralytics(nn.Module):
    """Features of square images (n, 3, S, S) in [0, 1], which are resized and normalised here."""

    def __init__(self, model: Embedder) -> None:
        super().__init__()
        self.inner = ImagesToFeatures(model, raw=False)
        self.size = (model.height, model.width)
        self.side = max(self.size)

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, dim)."""
        if self.size != (self.side, self.side):
            images = F.interpolate(images, self.size, mode="bilinear", align_corners=False)
        model = self.inner.model
        return self.inner((255 * images - model.mean) / model.std)

    def images(self, number: int) -> Tensor:
        """Random ones."""
        return torch.rand(number, 3, self.side, self.side, generator=torch.Generator().manual_seed(number))


def _for_reid(model: Embedder, out: Path, config: str, source: str) -> float:
    if out.exists():
        raise InputError(f"{out}: is there already; choose another --out, or delete it")
    architecture, network = _as_reid_builds_it(model)
    if not isinstance(model.neck, nn.Identity):
        logger.warning("the neck is left out, as reid has no place for it: features are those before it")
    state = {
        key.removeprefix(getattr(model.backbone, "inner", "")): value.cpu().contiguous()
        for key, value in model.backbone.state_dict().items()
    }
    state = {key: value for key, value in state.items() if not key.startswith("classifier.")}
    own = ImagesToFeatures(model, raw=False)
    own.model.neck = nn.Identity()
    reason = "its tensors are others"
    try:
        wanted = {key for key in network.state_dict() if not key.startswith("classifier.")}
        missing, foreign = wanted - state.keys(), state.keys() - wanted
        if not missing and not foreign:
            network.load_state_dict(state, strict=False)
            images = torch.randn(2, 3, model.height, model.width, generator=torch.Generator().manual_seed(0))
            difference = difference_of(own, network.eval(), [images])
            if difference <= TOLERANCE:
                return _write_reid(model, state, architecture, out, config, source, difference)
            reason = "its features are others, as pooling or strides are, which weights do not tell"
    except RuntimeError as error:  # of shapes
        refuse_out_of_memory(error, out)
        reason = " ".join(str(error).split())[:200]
    raise InputError(
        f"{out}: not written: what reid builds as {architecture} is not this network ({reason}); use --for boxmot"
    )


def _as_reid_builds_it(model: Embedder) -> tuple[str, nn.Module]:
    """The name that reid has for a network, and such a network with random weights."""
    kind, _, name = model.name.partition(":")
    if kind == "torchreid" and name in OSNETS:
        models = Extra("torchreid", "torchreid").models
        return name, models.build_model(name, num_classes=1, loss="triplet", pretrained=False)
    if kind == "timm" and name:
        return model.name, Extra("timm", "timm").create_model(name, pretrained=False, num_classes=0)
    raise InputError(
        f"{model.name}: reid takes {', '.join(OSNETS)} of torchreid and timm:NAME alone; "
        "train with MODEL.BACKBONE torchreid:osnet_x1_0, or use --for boxmot"
    )


def _write_reid(
    model: Embedder, state: dict[str, Tensor], architecture: str, out: Path, config: str, source: str, difference: float
) -> float:
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
        with folder_at_once(out, empty=True) as part:
            if part is None:
                raise InputError(f"{out}: is there already; choose another --out, or delete it")
            write_atomically(part / "weights.safetensors", lambda file: file.write(content))
            write_text(part / "reid_config.json", json.dumps(settings, indent=1) + "\n")
            write_text(part / "README.md", card_text("reid", model, out, config, source))
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None
    return difference


def card_text(tool: str, model: Embedder, out: Path, config: str, source: str) -> str:
    """The card of an exported model, Markdown: what it is, how it is used, and what it must not be taken for."""
    cfg = config_from_text(config, source) if config else None
    mean, std = (
        " ".join(f"{value / 255:.4g}" for value in each.flatten().tolist()) for each in (model.mean, model.std)
    )
    use = USE[tool].format(out=out.name, square=max(model.height, model.width))
    lines = [
        f"# {out.stem}",
        "",
        f"A re-identification model for {tool}, made of `{Path(source).name}`, lreid {installed_version('lreid')}.",
        "",
        f"* use: {use}",
        f"* network: {model.name}, {model.height} x {model.width} pixels (height x width) to {model.dim} numbers, "
        "to be compared by cosine similarity",
        f"* images: RGB, mean {mean}, standard deviation {std} of values in [0, 1]",
        f"* fingerprint: {fingerprint(model)}",
        *(_trained(cfg, source)),
        "",
        "It tells people or vehicles apart only where they look as those it was trained on; try it on your own "
        "cameras, and set a threshold there, before you rely on it. Recognising people is regulated in many places.",
    ]
    return "\n".join(lines) + "\n"


def _trained(cfg: CfgNode | None, source: str) -> list[str]:
    """What is known of its training."""
    if source.startswith(zoo.PREFIX):
        entry = zoo.find(source.removeprefix(zoo.PREFIX))
        if isinstance(entry, zoo.Published):
            return [
                f"* trained on: {entry.data}",
                f"* licence: {entry.licence}; {entry.terms}",
                f"* source: {entry.source}",
            ]
        figures = "; ".join(f"{name} mAP {each['mAP']}, Rank-1 {each['rank1']}" for name, each in entry.figures.items())
        return [f"* trained on: {entry.trained_on}", f"* figures: {figures}", f"* licence: {entry.licence}"]
    if cfg is None:
        return []
    return [
        f"* trained: {cfg.METHOD.NAME} on {cfg.BENCHMARK.NAME}, seed {cfg.SEED}",
        "* licence: that of its images and of the weights that it started from",
    ]
