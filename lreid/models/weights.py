"""Load trained weights into a backbone: third-party state dicts, checkpoints, packages, and tensors in memory."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lreid.data.listing import first_few
from lreid.errors import InputError, counted, raise_if_out_of_memory, short_reason
from lreid.models import packages
from lreid.models.norms import input_norm, put_norms
from lreid.models.state_dicts import read_state_dict

logger = logging.getLogger("lreid")

HEADS = "heads."  # prefix in fast-reid's files
FOREIGN = {"base.": "", "image_encoder.": "visual."}  # prefixes of TransReID and CLIP-ReID, and timm's prefixes


@dataclass(frozen=True, eq=False)
class Weights:
    """Trained tensors in memory, such as those of a zoo entry.

    Attributes:
        name: name in messages.
        state: tensors on the CPU, under the names that the training program gave them.
        norm: norm of the trained network, see :func:`lreid.models.norms.put_norms`.
    """

    name: str
    state: dict[str, Tensor]
    norm: str


def load_weights(network: nn.Module, weights: str | Weights, norm: str = "batch") -> None:
    """Load trained weights into a backbone, and log which tensors are ignored or missing; then add instance norms.

    lreid warns if the known norm of the trained network differs in the normalisation of input images (``+input`` or
    ``+grey``), because the tensors do not show this difference.

    Args:
        network: the backbone. If the backbone wraps another network, the backbone's attribute ``inner`` is the prefix
            of the wrapped network's tensor names. If the backbone has a method ``adapted``, this method converts the
            state dict.
        weights: ``package:NAME``, a file, or tensors.
        norm: places of instance norms, see :func:`lreid.models.norms.put_norms`.

    Raises:
        InputError: the weights are not available or do not fit the backbone.
    """
    if isinstance(weights, Weights) and input_norm(weights.norm) != input_norm(norm):
        logger.warning("%s: trained with the norm %s, but this run uses %s", weights.name, weights.norm, norm)
    name = weights if isinstance(weights, str) else weights.name
    state = _backbone_state(weights, name, network)
    # Instance norms copy the weights of the BatchNorms that they replace, so weights of a network without instance
    # norms are loaded first.
    plain = {key for key in network.state_dict() if key.endswith("running_mean")} <= state.keys()
    if not plain:
        put_norms(network, norm)
    network.load_state_dict(_fitting(name, state, network), strict=False)
    if plain:
        put_norms(network, norm)


def _fitting(weights: str, state: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that the network also has, and log the others; all required tensors must fit."""
    expected = network.state_dict()
    # torchreid's networks include a classifier that is not used, and files from before torch 0.4.1 have no counters.
    needed = {key for key in expected if "classifier" not in key and not key.endswith("num_batches_tracked")}
    misfits = {
        "left out": state.keys() - expected.keys(),
        "missing": expected.keys() - state.keys(),
        "of another shape": {key for key in expected.keys() & state.keys() if expected[key].shape != state[key].shape},
    }
    faults = [
        f"{counted(len(names), 'tensor')} {what} ({first_few(sorted(names))})"
        for what, all_names in misfits.items()
        if (names := all_names & needed)
    ]
    if faults:
        if misfits["missing"] & needed:
            faults.append(f"the file holds {first_few(sorted(misfits['left out'] or state))}")
        raise InputError(
            f"{weights}: does not fit this backbone: {'; '.join(faults)}; use the backbone that it was made for, "
            f"with its norm{' and input size' if hasattr(network, 'adapted') else ''}"
        )
    for what, names in misfits.items():
        if names:
            logger.info("%s: tensors %s, which the network does not need: %s", weights, what, ", ".join(sorted(names)))
    return {key: state[key] for key in expected.keys() & state.keys() - misfits["of another shape"]}


def load_neck(neck: nn.Module, weights: Weights) -> None:
    """Load trained weights into a neck.

    Raises:
        InputError: the weights contain no neck, or the neck has a different width.
    """
    state = {_name(key): value for key, value in weights.state.items()}
    state = {key.removeprefix("neck."): value for key, value in state.items() if key.startswith("neck.")}
    try:
        neck.load_state_dict(state)
    except RuntimeError:
        raise InputError(f"{weights.name}: holds no neck of this width; use weights with such a neck") from None


def _backbone_state(weights: str | Weights, title: str, network: nn.Module) -> dict[str, Tensor]:
    """Return trained tensors under the names that the backbone uses."""
    if title.startswith(packages.PREFIX):
        return packages.packaged_state(title, network)
    state = weights.state if isinstance(weights, Weights) else _read(weights)
    state = {_name(key): value for key, value in state.items()}
    inner = getattr(network, "inner", "")
    if any(f"backbone.{key}" in state for key in network.state_dict() if inner):  # an lreid model
        return {key.removeprefix("backbone."): value for key, value in state.items()}
    prefix = _prefix(title, state, network, inner)
    outside = {key: value for key, value in state.items() if not key.startswith(prefix)}
    state = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    for source, target in FOREIGN.items():
        inside = {target + key.removeprefix(source): value for key, value in state.items() if key.startswith(source)}
        if inside and not any(key.startswith(source) for key in network.state_dict()):
            state = inside
    adapt: Any = getattr(network, "adapted", None)
    if adapt is not None:
        try:
            state = adapt(state)
        except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise_if_out_of_memory(error, title)
            raise InputError(
                f"{title}: does not fit this backbone ({short_reason(error)}); use the backbone that it was made for"
            ) from None
    return outside | {inner + key.removeprefix("backbone."): value for key, value in state.items()}


def _prefix(weights: str, state: dict[str, Tensor], network: nn.Module, inner: str) -> str:
    """Find the prefix of a network's tensors in a state dict, such as ``model.`` or ``student.backbone.``.

    Only tensors with two or more dimensions are compared, because other names depend on the kind of norm layers.
    """
    adapted = hasattr(network, "adapted")  # True: embeddings will be resampled
    expected = {key.removeprefix(inner): value.shape for key, value in network.state_dict().items() if value.ndim > 1}
    expected = {key: shape for key, shape in expected.items() if "classifier" not in key}
    first = next(iter(expected), "")

    def fits(prefix: str) -> bool:
        return all(
            prefix + key in state and (adapted or state[prefix + key].shape == shape) for key, shape in expected.items()
        )

    candidates = [key.removesuffix(first) for key in state if f".{key}".endswith(f".{first}")] if first else []
    prefixes = [prefix for prefix in candidates if fits(prefix)]
    if len(prefixes) > 1:
        names = " and ".join(prefix or "no prefix" for prefix in prefixes)
        raise InputError(f"{weights}: holds {len(prefixes)} networks that fit, under {names}; save only one of them")
    return "".join(prefixes)


def _read(file: str) -> dict[str, Tensor]:
    if not (file and Path(file).exists()):
        raise InputError(
            f"{file or 'an empty name'}: no such file; name one, none, imagenet, hub, package:NAME or, in "
            "a config, zoo:NAME"
        )
    return read_state_dict(file)


def _name(key: str) -> str:
    """Return lreid's name for a tensor of a fast-reid head; fast-reid has changed its names twice.

    The official BNNeck of fast-reid had the name ``heads.bnneck`` in 2020 and has the name ``heads.bottleneck.0`` now.
    Files of January 2021 have a counter named ``heads.bnneck``. The exponent of GeM belongs to the head in fast-reid,
    and to the backbone in lreid.
    """
    for old, new in (("bnneck.", "neck."), ("bottleneck.0.", "neck."), ("pool_layer.", "backbone.pool.")):
        if key.startswith(HEADS + old):
            return new + key.removeprefix(HEADS + old)
    return key
