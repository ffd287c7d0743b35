"""Trained weights for a backbone: state dicts of others, checkpoints of runs, packages, entries of the zoo."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lreid.errors import InputError
from lreid.files import read_tensors
from lreid.models import packages
from lreid.models.norms import put_norms
from lreid.zoo import PREFIX, find, read_entry, read_safetensors

logger = logging.getLogger("lreid")

# torchreid's checkpoints hold a Rank-1 of this kind beside the weights; numpy 1 had it in another module.
_scalar = np.float64(0).__reduce__()[0]
NUMPY_SCALARS: list[Any] = [
    *((_scalar, f"{numpy}.multiarray.scalar") for numpy in ("numpy.core", "numpy._core")),
    np.dtype,
    type(np.dtype(np.float64)),
    type(np.dtype(np.float32)),
]


def load_weights(network: nn.Module, weights: str, norm: str = "batch") -> None:
    """Starts a backbone from trained weights; every tensor that is left out or missing is logged.

    Weights of the network with plain BatchNorm are loaded before the norms are put in, those of a network with such
    norms after it.

    Args:
        network: the backbone. Where it wraps another network, its attribute ``inner`` is what stands before the names
            of that one's tensors.
        weights: ``zoo:NAME``, ``package:NAME`` or a file.
        norm: of :func:`lreid.models.norms.put_norms`.

    Raises:
        InputError: they cannot be had or do not fit.
    """
    state = _backbone_state(weights, network)
    plain = {key for key in network.state_dict() if key.endswith("running_mean")} <= state.keys()
    if not plain:
        put_norms(network, norm)
    wanted = network.state_dict()
    # torchreid's networks carry a classifier along, and files from before torch 0.4.1 have no counters.
    needed = {key for key in wanted if "classifier" not in key and not key.endswith("num_batches_tracked")}
    misfits = {
        "left out": state.keys() - wanted.keys(),
        "missing": wanted.keys() - state.keys(),
        "of another shape": {key for key in wanted.keys() & state.keys() if wanted[key].shape != state[key].shape},
    }
    for what, names in misfits.items():
        for name in sorted(names):
            logger.info("%s: %s is %s", weights, name, what)
    told = [
        f"{len(names)} tensors {what} ({min(names)} …)"
        for what, all_names in misfits.items()
        if (names := all_names & needed)
    ]
    if told:
        raise InputError(
            f"{weights}: does not fit this backbone: {'; '.join(told)}; take the backbone that it was made for, "
            "with its norm"
        )
    fitting = {key: state[key] for key in wanted.keys() & state.keys() - misfits["of another shape"]}
    network.load_state_dict(fitting, strict=False)
    if plain:
        put_norms(network, norm)


def _backbone_state(weights: str, network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a file or an entry of the zoo, under the names that they would have in a backbone."""
    if weights.startswith(packages.PREFIX):
        return packages.packaged_state(weights, network)
    if weights.startswith(PREFIX):
        _, state = read_entry(find(weights.removeprefix(PREFIX)))
    elif weights.endswith(".safetensors"):
        state = read_safetensors(Path(weights))
    else:
        with torch.serialization.safe_globals(NUMPY_SCALARS):
            content = read_tensors(weights)
        # A checkpoint of a run, one of torchreid, or a plain state dict.
        layouts = (content.get("model"), content.get("state_dict"), content)
        state = next((each for each in layouts if _is_state_dict(each)), {})
        if not state:
            raise InputError(
                f"{weights}: holds no tensors by name, neither itself nor under model or state_dict; name a state dict"
            )
    state = {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, Tensor)}
    if any(key.startswith("backbone.") for key in state):  # of a model of lreid
        return {key.removeprefix("backbone."): value for key, value in state.items()}
    return {getattr(network, "inner", "") + key: value for key, value in state.items()}


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(key, str) for key in value)
        and any(isinstance(each, Tensor) for each in value.values())
    )
