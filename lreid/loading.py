"""Load a trained model from a file, a folder, the model zoo or Hugging Face's hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor, nn
from yacs.config import CfgNode

from lreid import zoo
from lreid.checkpoint import load_checkpoint, load_model_state, task_checkpoints
from lreid.config import check_values, config_from_text
from lreid.errors import ArgumentError, InputError, OutOfMemory, naming_keys, short_reason
from lreid.models.backbones import normalisation
from lreid.models.embedder import Embedder
from lreid.models.inputs import IMAGES_AND_VIDEOS
from lreid.models.parts import neck_in
from lreid.utils.devices import pick_device
from lreid.utils.extras import Extra
from lreid.utils.files import list_folder

if TYPE_CHECKING:
    from lreid.models.exported import OnnxEmbedder
    from lreid.models.weights import Weights

HUB = "hub:"  # prefix for repositories on Hugging Face's hub


def load_model(source: str | Path, device: str | torch.device = "auto") -> Embedder:
    """Load a trained network in evaluation mode; its method ``extract`` computes features of images.

    On all devices, the features are the same up to float32 rounding, and the model's
    :func:`~lreid.models.fingerprint.fingerprint` is the same. A gallery that was built on one device can therefore be
    searched on another.

    Args:
        source: one of these sources: a checkpoint ``.pt`` of a run; ``zoo:NAME`` for an entry of the zoo (see
            :mod:`lreid.zoo`), or only ``NAME`` if no file has this name; a ``.safetensors`` file with its card next to
            it; an ``.onnx`` file of :func:`lreid.export.export`; the folder of a run; a folder with exactly one
            ``.safetensors`` or ``.onnx`` file; ``hub:OWNER/NAME`` or ``hub:OWNER/NAME@REVISION`` for a repository on
            Hugging Face's hub with exactly one such file.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda:1`` …

    Raises:
        InputError: the file or entry is missing, damaged, or not a model of lreid; or the device cannot be used.
    """
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise ArgumentError("source", "is not the name of a model; call load_model('zoo:people') or give a file")
    if str(source).lower().endswith(IMAGES_AND_VIDEOS):
        call = "call model = load_model('zoo:people'), then model.extract(images)"
        raise ArgumentError("source", f"{source}: is an image or a video, not a model; {call}")
    if "://" in str(source):
        raise ArgumentError("source", f"{source}: is a web address; download the model and pass its file")
    lasting = lasting_name(source)
    source = single_file(source)
    if _is_onnx(source):
        if str(device) not in ("auto", "cpu"):
            raise ArgumentError("device", f"is {device}, but an ONNX file runs on the CPU; use cpu")
        device = "cpu"
    place = pick_device(str(device))
    from lreid.models.inference import Inference  # training does not need it

    model = _onnx_model(source) if _is_onnx(source) else _torch_model(source)
    model.source = lasting
    model.inference = Inference()
    return model.to(place)


def _torch_model(source: str | Path) -> Embedder:
    """Load the network of a file or zoo entry onto the CPU."""
    entry = _entry(source)
    if entry is not None and isinstance(entry, zoo.Published):
        return _published_model(entry)
    state = read_checkpoint(source)
    cfg = config_from_text(state["config"], str(source))
    try:
        check_values(cfg, ("INPUT.", "MODEL."))
    except InputError as error:
        raise InputError(f"{source}: its config does not describe a trained model: {error}") from None
    return _trained_network(cfg, state["model"], source)


def _trained_network(cfg: CfgNode, state: dict[str, Tensor], source: str | Path) -> Embedder:
    """Build the network of a config with the tensors of a state dict."""
    # Whether there is a neck is read from the weights, so a model of a custom method loads without the method's class.
    model = network_of(cfg, neck=neck_in(state))
    if "backbone.prompts.experts" in state:  # of PAD, which are not part of the network
        _, slots, length, _ = state["backbone.prompts.experts"].shape
        put_prompts: Any = model.backbone.put_prompts
        put_prompts(general=state["backbone.prompts.general"].shape[1], length=length, slots=slots)
    load_model_state(model, state, Path(source))
    return model.eval()


def _onnx_model(source: str | Path) -> OnnxEmbedder:
    from lreid.models.exported import OnnxEmbedder

    return OnnxEmbedder(source).eval()


def _published_model(entry: zoo.Published) -> Embedder:
    """Load the network of a third-party checkpoint: the backbone, and the neck if the checkpoint has one."""
    weights = _zoo_weights(entry)
    cfg = config_from_text(yaml.safe_dump(entry.config), weights.name)
    model = network_of(cfg, weights=weights, neck=entry.neck)
    if entry.neck:
        from lreid.models.weights import load_neck

        load_neck(model.neck, weights)
    return model.eval()


def _zoo_weights(entry: zoo.Card | zoo.Published) -> Weights:
    from lreid.models.state_dicts import read_state_dict
    from lreid.models.weights import Weights

    name = zoo.PREFIX + entry.name
    if isinstance(entry, zoo.Published):
        return Weights(name, read_state_dict(zoo.weights_file(entry)), entry.norm)
    return Weights(name, zoo.read_entry(entry)[1], entry.norm)


def network_of_entry(cfg: CfgNode) -> Embedder | None:
    """Load the zoo model that ``MODEL.WEIGHTS`` names, including its neck, for the input size of a config.

    Returns:
        The model on the CPU in evaluation mode, or None if ``MODEL.WEIGHTS`` does not name an entry of the zoo.

    Raises:
        InputError: :func:`load_model` raises an error, or the config describes another network.
    """
    weights = cfg.MODEL.WEIGHTS
    if not weights.startswith(zoo.PREFIX):
        return None
    return _trained_network(cfg, read_checkpoint(weights)["model"], weights)


def network_of(cfg: CfgNode, *, weights: str | Weights = "none", neck: bool | nn.Module = False) -> Embedder:
    """Build the network that the groups ``MODEL`` and ``INPUT`` of a config describe.

    Args:
        cfg: a resolved config.
        weights, neck: see :class:`~lreid.models.Embedder`; ``weights`` may also be ``zoo:NAME``.

    Raises:
        InputError: the backbone does not exist, or its weights are not available.
    """
    if isinstance(weights, str) and weights.startswith(zoo.PREFIX):
        weights = _zoo_weights(zoo.find(weights))
    options = {key.lower(): value for key, value in cfg.MODEL.items()} | {"weights": weights, "neck": neck}
    size = {key.lower(): cfg.INPUT[key] for key in ("HEIGHT", "WIDTH", "MEAN", "STD")}
    with naming_keys("MODEL", **{key: f"INPUT.{key.upper()}" for key in size}):
        return Embedder(**options, **size)


def initial_normalisation(cfg: CfgNode) -> tuple[Sequence[float], Sequence[float]] | None:
    """Find the means and standard deviations of RGB in [0, 1] with which ``MODEL.WEIGHTS`` were trained.

    Returns:
        Means and standard deviations, or None if they are those of ImageNet or unknown.

    Raises:
        InputError: no zoo entry, package or network of timm has this name.
    """
    weights = cfg.MODEL.WEIGHTS
    if weights.startswith(zoo.PREFIX):
        entry = zoo.find(weights)
        return entry.mean, entry.std
    if not os.path.isfile(weights):
        return normalisation(cfg.MODEL.BACKBONE, weights)
    try:
        section = model_config(weights).INPUT
    except OutOfMemory:
        raise
    except InputError:  # the file is not a model of lreid, or loading its weights will report the error
        return None
    return section.MEAN, section.STD


def model_config(source: str | Path, overrides: Sequence[str] = ()) -> CfgNode:
    """Read the config with which a model was trained.

    Args:
        source: see :func:`load_model`.
        overrides: ``KEY VALUE`` pairs that replace values of the config.

    Raises:
        InputError: :func:`load_model` raises an error, or a pair is invalid.
    """
    source = single_file(source)
    if entry := _entry(source):  # the card suffices, without the weights
        config = yaml.safe_dump(entry.config)
    else:
        config = _onnx_model(source).config if _is_onnx(source) else read_checkpoint(source)["config"]
    return config_from_text(config, str(source), overrides)


def read_checkpoint(source: str | Path) -> dict[str, Any]:
    """Read a model as a dictionary with the keys ``model`` (the state dict) and ``config`` (YAML text).

    For the checkpoint of a run, the dictionary also has all other parts of the checkpoint. For a third-party
    checkpoint, ``model`` is the state dict of the network that :func:`load_model` builds.

    Args:
        source: see :func:`load_model`.

    Raises:
        InputError: see :func:`load_model`.
    """
    source = single_file(source)
    entry = _entry(source)
    if entry is not None and isinstance(entry, zoo.Published):
        return {"model": _published_model(entry).state_dict(), "config": yaml.safe_dump(entry.config)}
    if entry is None:
        state = load_checkpoint(Path(source))
        if "config" not in state:
            raise InputError(f"{source}: has no config; use a checkpoint that lreid train wrote")
        return state
    card, state = zoo.read_entry(entry)
    return {"model": state, "config": yaml.safe_dump(card.config)}


def single_file(source: str | Path) -> str | Path:
    """Find the model file in a folder or in a repository on the hub; return other sources unchanged.

    Raises:
        InputError: the folder contains no model of lreid or several models, or the repository cannot be downloaded.
    """
    if str(source).startswith(HUB):
        folder = _from_hub(str(source).removeprefix(HUB))
    elif os.path.isdir(source):
        folder = Path(source)
    else:
        return source
    if tasks := task_checkpoints(folder / "checkpoints"):
        return tasks[max(tasks)]
    models = sorted(each for suffix in ("*.safetensors", "*.onnx") for each in list_folder(folder, suffix))
    if len(models) == 1:
        return models[0]
    if models:
        raise InputError(f"{source}: contains {len(models)} models ({models[0].name}, {models[1].name} …); name one")
    raise InputError(
        f"{source}: contains no model of lreid; pass the folder of a run that finished a task, a folder written by "
        "lreid zoo publish, or a folder with an .onnx file written by lreid export"
    )


def _from_hub(name: str) -> Path:
    """Download a repository's missing files, and return its folder in the cache of huggingface_hub."""
    repository, _, revision = name.partition("@")
    hub = Extra("huggingface_hub", "hub").load()
    try:
        patterns = ["*.json", "*.safetensors", "*.onnx", "*.md"]  # only files that run no code when they are loaded
        return Path(hub.snapshot_download(repository, revision=revision or None, allow_patterns=patterns))
    except Exception as error:  # the hub's client raises exceptions of many kinds
        raise InputError(
            f"{HUB}{name}: cannot be downloaded from the hub ({short_reason(error)}); download it manually and pass "
            "its folder"
        ) from None


def lasting_name(source: str | Path) -> str:
    """Return a name that is valid in every working directory: an absolute path, or ``zoo:NAME``."""
    if str(source).startswith(HUB):
        return str(source)
    if not zoo.is_entry(source):
        return os.path.abspath(single_file(source))
    name = str(source).removeprefix(zoo.PREFIX)
    return zoo.PREFIX + (os.path.abspath(name) if name.endswith(".json") else name)


def _entry(source: str | Path) -> zoo.Card | zoo.Published | None:
    """Find the card of a zoo entry or ``.safetensors`` file, or a third-party entry; None for other files."""
    if zoo.is_entry(source):
        return zoo.find(str(source))
    path = Path(source)
    return zoo.card_beside(path) if path.suffix == ".safetensors" else None


def _is_onnx(source: str | Path) -> bool:
    return Path(source).suffix == ".onnx"
